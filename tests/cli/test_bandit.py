"""`robustfd bandit train`, `predict` and `evaluate`, on lines of actions, blocks of lines and tables."""

import gzip
import json
import os
import signal

import numpy as np
import pytest

import robustfd
from robustfd import ContextualBandit, evaluate_policy
from tests.cli.conftest import execute, rows_kept, start, until

N, ARMS = 400, 3


@pytest.fixture(scope="module")
def log():
    """Contexts, chosen arms 1 to 3, costs and probabilities."""
    rng = np.random.default_rng(0)
    X, arm, p = rng.standard_normal((N, 4)).round(3), rng.integers(1, ARMS + 1, N), rng.uniform(0.2, 0.5, N).round(3)
    return X, arm, (rng.random(N) < 0.3 + 0.4 * ((X[:, 0] > 0) == (arm == 2))) * 1.0, p


def features(x):
    return " ".join(f"{j + 1}:{value}" for j, value in enumerate(x))


def lines(log):
    return "".join(f"{a}:{c}:{p} | {features(x)}\n" for x, a, c, p in zip(*log, strict=True))


def blocks(log, arm="| {}"):
    text = ""
    for x, chosen, cost, p in zip(*log, strict=True):
        text += f"shared | {features(x)}\n"
        text += "".join(f"0:{cost}:{p} " * int(a == chosen) + arm.format(a) + "\n" for a in range(1, ARMS + 1)) + "\n"
    return text


def table(log, names="arm,cost,probability"):
    rows = [",".join(map(str, (a, c, p, *x))) for x, a, c, p in zip(*log, strict=True)]
    return "\n".join([f"{names},a,b,c,d", *rows, ""])


@pytest.fixture
def files(tmp_path, log, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("log.cb.vw", lines(log)), ("log.adf.vw", blocks(log)), ("log.csv", table(log))):
        (tmp_path / name).write_text(text)
    (tmp_path / "log.gz").write_bytes(gzip.compress(lines(log).encode()))
    return ["log.cb.vw", "log.adf.vw", "log.csv", "log.gz"]


def test_all_forms_of_a_log_make_the_same_policy(run, files, log, tmp_path):
    X, arm, cost, p = log
    wanted = ContextualBandit(random_state=0).fit(X, arm, 0 - cost, p)
    judged = evaluate_policy(
        wanted.predict_proba(X)[np.arange(N), [wanted.arms_.index(a) for a in arm]], -cost, p, reward_range=(-1, 0)
    )
    found = []
    for name in files:
        done = run("bandit", "train", name, "-o", "policy.rfd", "--json")
        assert done.status == 0 and done.json["rows"] == N and done.json["arms"] == ARMS, done.err
        assert done.json["progressive_reward"] == pytest.approx(-cost.mean()) and "reward  since last" in done.err
        assert robustfd.load("policy.rfd").to_bytes() == wanted.to_bytes()
        for option, best in ((), False), (("--best",), True):
            rows = run("bandit", "predict", "policy.rfd", name, *option).out.split()
            assert len(rows) == N
            if best:
                assert list(map(int, rows)) == wanted.predict(X).tolist()
            else:
                pmf = [{int(k): float(v) for k, v in (each.split(":") for each in row.split(","))} for row in rows]
                chances = [[row[a] for a in wanted.arms_] for row in pmf]
                np.testing.assert_allclose(chances, wanted.predict_proba(X), atol=1e-6)
        found.append(run("bandit", "evaluate", "policy.rfd", name, "--json").json)
        assert found[-1]["ips"] == pytest.approx(judged.ips) and found[-1]["snips"] == pytest.approx(judged.snips)
        assert (found[-1]["interval_low"], found[-1]["interval_high"]) == pytest.approx(judged.interval)
        assert found[-1]["rows"] == N and found[-1]["dr"] is not None and found[-1]["level"] == 0.95
    assert all(each == pytest.approx(found[0]) for each in found)
    wide = run("bandit", "evaluate", "policy.rfd", "log.cb.vw", "--level", "0.99", "--json").json
    assert wide["interval_low"] < found[0]["interval_low"] and wide["interval_high"] > found[0]["interval_high"]


def test_standard_input(run, log, files):
    assert run("bandit", "train", "log.cb.vw", "-o", "a.rfd", "--hash-bits", "8").status == 0
    for text, more in ((lines(log), ()), (table(log), ("--format", "csv"))):
        assert run("bandit", "train", "-", "-o", "b.rfd", *more, stdin=text.encode()).status == 0
    assert run("bandit", "train", "-", "-o", "b.rfd", "--hash-bits", "8", stdin=lines(log).encode()).status == 0
    assert robustfd.load("a.rfd").to_bytes() == robustfd.load("b.rfd").to_bytes()
    assert len(run("bandit", "predict", "b.rfd", "-", stdin=b"| 1:2\n1 3 'tag| 2\n").out.splitlines()) == 2


def test_unlabelled_rows_have_the_arms_that_they_name(run, files):
    assert run("bandit", "train", "log.cb.vw", "-o", "policy.rfd", "--epsilon", "0.3").status == 0
    first, second = run("bandit", "predict", "policy.rfd", "-", stdin=b"| 1:2\n1 3 'tag| 2:1\n").out.splitlines()
    assert {each.split(":")[0] for each in first.split(",")} == {"1", "2", "3"} and second.endswith(" tag")
    chances = dict(each.split(":") for each in second.split()[0].split(","))
    assert set(chances) == {"1", "3"} and sum(map(float, chances.values())) == pytest.approx(1, abs=1e-5)
    assert min(map(float, chances.values())) >= 0.15 - 1e-6
    done = run("bandit", "predict", "policy.rfd", "-", stdin=b"| 1:2\n1 9 | 2:1\n")
    assert done.status == 1 and "row 1 (from 0) has the arm 9, which the policy cannot choose; it has [" in done.err


def test_arms_with_features(run, log, files, tmp_path):
    """The same as in Python, with a dict for each arm."""
    X, arm, cost, _ = log
    (tmp_path / "log.vw").write_text(blocks(log, "| name={0} size:{0}.5"))
    assert run("bandit", "train", "log.vw", "-o", "policy.rfd").status == 0
    policy = robustfd.load("policy.rfd")
    assert policy.arms_ == [] and policy.n_features_in_ == 4
    sizes = [{"size": a + 0.5, f"name={a}": 1.0} for a in range(1, ARMS + 1)]
    wanted = ContextualBandit(random_state=0).fit(X, [sizes[a - 1] for a in arm], -cost)
    pmf = run("bandit", "predict", "policy.rfd", "log.vw").out.splitlines()
    found = [[float(each.split(":")[1]) for each in row.split(",")] for row in pmf]
    assert pmf[0].startswith("0:")
    np.testing.assert_allclose(found, wanted.predict_proba(X, [sizes] * N), atol=0.051)  # a tie of two may differ
    done = run("bandit", "evaluate", "policy.rfd", "log.vw", "--json")
    assert done.status == 0 and done.json["rows"] == N
    for name, message in (("log.cb.vw", "log.cb.vw, line 2: only one action"), ("log.csv", "layout of rows of table")):
        done = run("bandit", "predict", "policy.rfd", name)
        assert done.status == 1 and message in done.err, done.err


def test_two_halves_are_merged(run, log, files, tmp_path):
    halves = [tuple(each[part] for each in log) for part in (slice(N // 2), slice(N // 2, None))]
    for form, write in (("cb", lines), ("adf", blocks), ("features", lambda log: blocks(log, "| name={0} size:{0}"))):
        for k, half in enumerate(halves):
            (tmp_path / f"{form}{k}.vw").write_text(write(half))
            assert run("bandit", "train", f"{form}{k}.vw", "-o", f"{form}{k}.rfd").status == 0
        done = run("merge", f"{form}0.rfd", f"{form}1.rfd", "-o", f"{form}.rfd", "--json")
        assert done.status == 0 and done.json["rows"] == N, done.err
        assert done.json["progressive_reward"] == pytest.approx(-log[2].mean())
        assert run("bandit", "evaluate", f"{form}.rfd", f"{form}0.vw").status == 0
    done = run("merge", "cb0.rfd", "features1.rfd", "-o", "x.rfd")
    assert done.status != 0 and "read differently" in done.err


def test_a_policy_is_continued(run, log, files, tmp_path):
    for k, part in enumerate((slice(N // 2), slice(N // 2, None))):
        (tmp_path / f"half{k}.csv").write_text(table(tuple(each[part] for each in log)))
    assert run("bandit", "train", "half0.csv", "-o", "half.rfd").status == 0
    assert run("bandit", "train", "half1.csv", "--from", "half.rfd", "-o", "whole.rfd").status == 0
    assert run("bandit", "train", "log.csv", "-o", "once.rfd").status == 0
    assert (tmp_path / "whole.rfd").read_bytes() == (tmp_path / "once.rfd").read_bytes()
    for more, message in ((("--epsilon", "0.5"), "does not match"), (("--hash-bits", "8"), "already defines")):
        done = run("bandit", "train", "half1.csv", "--from", "half.rfd", "-o", "x.rfd", *more)
        assert done.status == 2 and message in done.err


@pytest.mark.parametrize("jobs", [2, 3])
def test_jobs_learn_parts(run, files, jobs):
    for name in ("log.cb.vw", "log.adf.vw"):
        done = run("bandit", "train", name, "-o", "policy.rfd", "--jobs", jobs, "--json")
        assert done.status == 0 and done.json["rows"] == N, done.err
        assert sum(robustfd.load("policy.rfd").n_pulls_.values()) == N


@pytest.mark.parametrize("name", ["log.cb.vw", "log.adf.vw", "log.csv"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_is_resumed_to_the_same_bytes(run, files, small_blocks, tmp_path, name, jobs):
    command = ("bandit", "train", name, "--jobs", str(jobs), "--every", "1", "--seed", "3")
    assert run(*command, "-o", "whole.rfd", "--checkpoint", "other").status == 0
    process = start(tmp_path, *command, "-o", "policy.rfd", "--checkpoint", "kept")
    until(lambda: os.path.exists("kept") or process.poll() is not None)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    if not os.path.exists("policy.rfd"):  # it was not too fast
        assert 0 < rows_kept("kept") < N
        done = run(*command, "-o", "policy.rfd", "--checkpoint", "kept", "--resume")
        assert done.status == 0 and "Continuing from row" in done.err
    assert (tmp_path / "policy.rfd").read_bytes() == (tmp_path / "whole.rfd").read_bytes()
    done = run(*command, "-o", "policy.rfd", "--checkpoint", "kept", "--resume")
    assert done.status == 0 and (tmp_path / "policy.rfd").read_bytes() == (tmp_path / "whole.rfd").read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":0.2", ":1.2", "the probability of an action must be in (0, 1], got 1.2"),
        (":1.0:", ":inf:", "got 1:inf:"),
        (":0.0:", ":1e999:", "a number is not finite"),
    ],
)
def test_a_bad_line_is_named_and_nothing_learned_is_lost(run, log, files, small_blocks, tmp_path, old, new, message):
    text = lines(log).splitlines()
    bad = next(i for i in range(N // 2, N) if old in text[i].split("|")[0])
    text[bad] = text[bad].replace(old, new, 1)
    if "inf" in message:
        text[bad] = "1" + text[bad][1:]
    (tmp_path / "log.cb.vw").write_text("\n".join(text))
    done = run("bandit", "train", "log.cb.vw", "-o", "policy.rfd", "--checkpoint", "kept", "--features", "4")
    assert done.status == 1 and f"log.cb.vw, line {bad + 1}: " in done.err and message in done.err
    assert 0 < rows_kept("kept") <= bad and not os.path.exists("policy.rfd")
    done = run("bandit", "train", "log.cb.vw", "-o", "policy.rfd", "--on-error", "skip", "--json")
    assert done.status == 0 and done.json["rows"] == N - 1 and f"line {bad + 1}" in done.err


def test_what_is_wrong_with_a_table(run, log, files, tmp_path):
    for text, message in (
        (table(log, "arm,cost,reward"), "There is a column of rewards, 'reward', and one of costs, 'cost'"),
        (table(log, "x,cost,probability"), "log.csv has no arms. Name the columns of a table with --arm and --reward"),
        (table(log, "arm,x,probability"), "log.csv has no rewards"),
    ):
        (tmp_path / "log.csv").write_text(text)
        done = run("bandit", "train", "log.csv", "-o", "policy.rfd")
        assert done.status == 2 and message in done.err, done.err
    (tmp_path / "log.csv").write_text(table(log, "who,loss,chance"))
    named = ("--arm", "who", "--cost", "loss", "--probability", "chance")
    assert run("bandit", "train", "log.csv", "-o", "policy.rfd", *named).status == 0
    assert robustfd.load("policy.rfd").n_features_in_ == 4
    assert run("bandit", "evaluate", "policy.rfd", "log.csv").status == 0, "the policy knows its columns"
    assert len(run("bandit", "predict", "policy.rfd", "-", "--format", "csv", stdin=b"a,b,c,d\n1,2,3,4\n").out) > 3


def test_json_lines(run, log, files, tmp_path):
    rows = [{"arm": f"a{a}", "cost": c, "propensity": p, "x": dict(zip("abcd", x))} for x, a, c, p in zip(*log)]
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps(row, default=lambda each: each.item()) + "\n" for row in rows)
    )
    assert run("bandit", "train", "log.jsonl", "-o", "policy.rfd", "--hash-bits", "6").status == 0
    assert robustfd.load("policy.rfd").progressive_reward_ == pytest.approx(-log[2].mean())
    assert run("bandit", "evaluate", "policy.rfd", "log.jsonl", "--json").json["rows"] == N
    assert (
        run("bandit", "predict", "policy.rfd", "-", "--format", "jsonl", stdin=b'{"x": {"a": 1}}').out.count(":") == 3
    )


def test_what_is_wrong_with_an_evaluation(run, log, files, tmp_path):
    assert run("bandit", "train", "log.cb.vw", "-o", "policy.rfd").status == 0
    X, arm, cost, p = log
    for (row, text), message in (
        ((7, "1:1 | 1"), "row 7 (from 0) has no probability"),
        ((9, "9:1:.5 | 1"), "row 9 (from 0) has the arm 9, which the policy cannot choose"),
        ((9, "1 2:1:.5 8 | 1"), "row 9 (from 0) has the arm 8, which the policy cannot choose"),
        ((11, "1:5:.5 | 1"), "row 11 (from 0) has the reward -5, outside of [-1, 0]"),
    ):
        found = lines(log).splitlines()
        found[row] = text
        (tmp_path / "log.vw").write_text("\n".join(found))
        done = run("bandit", "evaluate", "policy.rfd", "log.vw")
        assert done.status == 1 and message in done.err, done.err
    assert run("bandit", "evaluate", "policy.rfd", "log.vw", "--reward-range=-5,0").status == 0
    for options, message in (
        (("--level", "1"), "level must be in (0, 1), got 1"),
        (("--level", "-2"), "level must be"),
        (("--reward-range", "1"), "--reward-range must be two numbers, LOW,HIGH, got '1'"),
        (("--reward-range", "1,0"), "must be (low, high)"),
    ):
        done = run("bandit", "evaluate", "policy.rfd", "log.cb.vw", *options)
        assert done.status == 2 and message in done.err, done.err
    (tmp_path / "one.vw").write_text("1:1:.5 | 1\n")
    assert run("bandit", "train", "one.vw", "-o", "one.rfd").status == 0
    assert "no two different rewards" in run("bandit", "evaluate", "one.rfd", "one.vw").err


def test_other_commands_and_files_are_told_apart(run, files, svm):
    for command in (
        ("train", "log.cb.vw", "-o", "x"),
        ("train", "log.adf.vw", "-o", "x"),
        ("sketch", "log.adf.vw", "-o", "x"),
    ):
        done = run(*command)
        assert done.status == 2 and "is the log of a contextual bandit. Use robustfd bandit train" in done.err
    done = run("bandit", "train", svm, "-o", "x")
    assert done.status == 2 and "has no arms" in done.err
    assert (
        run("train", svm, "-o", "model.rfd").status == 0
        and run("bandit", "train", "log.csv", "-o", "p.rfd").status == 0
    )
    done = run("bandit", "predict", "model.rfd", "log.csv")
    assert done.status == 2 and "Give a file that `robustfd bandit train` wrote" in done.err
    done = run("predict", "p.rfd", "log.csv")
    assert done.status == 2 and "holds a ContextualBandit" in done.err


def test_the_process(files):
    """As a user starts it."""
    done = execute("bandit", "train", os.path.abspath("log.cb.vw"), "-o", os.path.abspath("p.rfd"), "--quiet")
    assert done.status == 0 and "progressive reward" in done.out and done.err == ""
    assert execute("bandit", "--help").status == 0
