"""`robustfd train table.csv --target y`: a table as people have them, with nothing to say but the target."""

import csv
import json

import numpy as np
import pytest

import robustfd
from robustfd.cli._console import as_options


def write_table(path, n=300, seed=0, labels=True):
    """Write orders: ids, dates, gaps, text, booleans; the label depends on all but the id."""
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["order id", "placed", "amount", "age", "city", "member", "note", "weight", "returned"])
        for k in range(n):
            day, month, amount, age = rng.integers(1, 28), rng.integers(1, 13), rng.gamma(2, 30), rng.integers(18, 90)
            city, member = rng.choice(["Bern", "Genève", "Zürich"]), bool(rng.integers(2))
            gap = rng.random() < 0.2
            score = amount / 60 - 1 + (city == "Bern") - member + 1.5 * gap + 0.3 * rng.standard_normal()
            lines.writerow([
                f"A{k:05d}", f"2026-{month:02d}-{day:02d}", "" if rng.random() < 0.1 else f"{amount:.2f}",
                "" if gap else age, city, "true" if member else "false", "" if k % 3 else "gift, wrapped",
                k % 3 + 1, ("yes" if score > 0 else "no") if labels else "",
            ])  # fmt: skip
    return path


def test_a_table_needs_nothing_but_its_target(run, tmp_path):
    table, model = write_table(tmp_path / "orders.csv"), tmp_path / "m.rfd"
    done = run("train", table, "--target", "returned", "-o", model, "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 300 and done.json["classes"] == ["no", "yes"]
    judged = run("evaluate", model, table, "--json").json
    assert judged["rows"] == 300 and judged["accuracy"] > 0.8
    predicted = run("predict", model, table)
    assert predicted.status == 0 and len(predicted.out.splitlines()) == 301, predicted.err


def test_predictions_are_explained_by_the_columns_of_the_table(run, tmp_path):
    pd = pytest.importorskip("pandas")
    table, model, output = write_table(tmp_path / "orders.csv"), tmp_path / "m.rfd", tmp_path / "p.csv"
    run("train", table, "--target", "returned", "--drop", "order id", "-o", model)
    features = pd.read_csv(table).drop(columns=["order id", "returned"])
    python = tmp_path / "python.rfd"
    robustfd.SketchedNewtonRegressor(shuffle=False).fit(features, np.arange(300.0)).save(python)
    for path, learner in ((model, robustfd.load(model)), (python, robustfd.load(python))):
        done = run("predict", path, table, "--drop", "order id", "--contributions", "-o", output)
        done = done if path == model else run("predict", path, table, "--contributions", "-o", output)
        assert done.status == 0, done.err
        found = pd.read_csv(output)
        parts = found[[f"contribution({name})" for name in features.columns] + ["intercept"]].to_numpy()
        if path == python:
            np.testing.assert_allclose(parts[:, :-1], learner.contributions(features), rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(parts.sum(axis=1), found["prediction"], rtol=1e-9)
        else:
            assert ((parts.sum(axis=1) > 0) == (found["prediction"] == "yes")).all()
        shown = run("inspect", path)
        assert "city=Bern" in shown.out and "hash " not in shown.out, shown.err
    rows = tmp_path / "rows.vw"
    rows.write_text("1 | a:1 b:2\n-1 | a:2\n" * 20)
    run("train", rows, "-o", model)
    done = run("predict", model, rows, "--contributions")
    assert done.status != 0 and "at most 1000 features" in done.err


def test_what_was_said_when_training_need_not_be_said_again(run, tmp_path):
    table, model = write_table(tmp_path / "orders.csv"), tmp_path / "m.rfd"
    said = ("--target", "returned", "--id", "order id", "--drop", "note,placed", "--weight", "weight")
    done = run("train", table, *said, "--categories", "onehot", "-o", model, "--json")
    assert done.status == 0, done.err
    assert done.json["features"] == 3 + 3  # amount, age, member; three cities
    new = write_table(tmp_path / "new.csv", 20, seed=1, labels=False)
    predicted = run("predict", model, new)
    assert predicted.status == 0, predicted.err
    lines = list(csv.reader(predicted.out.splitlines()))
    assert lines[0] == ["prediction", "order id"]
    assert [line[1] for line in lines[1:]] == [f"A{k:05d}" for k in range(20)]
    assert run("evaluate", model, table, "--json").json["accuracy"] > 0.8


def test_gaps_taken_for_zero_when_training_are_so_ever_after(run, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,z,y\n" + "".join(f"{k if k % 4 else ''},{k % 7},{k % 4}\n" for k in range(1, 200)))
    model = tmp_path / "m.rfd"
    more = ("--task", "regression", "--missing", "zero")
    assert run("train", table, "-o", model, *more).status == 0
    (tmp_path / "gap.csv").write_text("x,z\n,3\n")
    (tmp_path / "zero.csv").write_text("x,z\n0,3\n")
    gap, zero = (run("predict", model, tmp_path / name).out for name in ("gap.csv", "zero.csv"))
    assert gap == zero != ""


@pytest.mark.parametrize(
    "arguments",
    [("train", "--learner", "rfdson", "--target", "returned"), ("sketch", "-m", "5")],
)
def test_others_say_what_to_do_about_gaps(run, tmp_path, arguments):
    table = write_table(tmp_path / "orders.csv")
    done = run(arguments[0], table, *arguments[1:], "-o", tmp_path / "m.rfd")
    assert done.status == 1 and "is missing (--missing zero" in done.err
    assert "--drop" in done.err and "--on-error skip" in done.err
    done = run(arguments[0], table, *arguments[1:], "--missing", "nan", "-o", tmp_path / "m.rfd")
    assert done.status == 2 and "--missing nan needs the learner newton" in done.err


def test_compare_takes_gaps_too(run, tmp_path):
    table = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3))
    y = (x[:, 0] * 2 + x[:, 1] > 0).astype(int)
    text = [f"{a if rng.random() < 0.9 else ''},{b},{c},{t}" for (a, b, c), t in zip(x.tolist(), y.tolist())]
    table.write_text("\n".join(["a,b,c,y", *text]) + "\n")
    done = run("compare", table, "--quick", "--json")
    assert done.status == 0, done.err
    assert not any(each["diverged"] for each in done.json["learners"])


@pytest.mark.parametrize("loss, more", [("absolute", ()), ("quantile", ("--quantile", "0.9")), ("poisson", ())])
def test_losses_of_a_regression(run, tmp_path, loss, more):
    rng = np.random.default_rng(0)
    rows = [f"{a},{rng.poisson(np.exp(a))}" for a in rng.random(500).tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    model = tmp_path / "m.rfd"
    done = run("train", tmp_path / "t.csv", "--task", "regression", "--loss", loss, *more, "-o", model)
    assert done.status == 0, done.err
    kept = robustfd.load(model)
    assert kept.loss == loss and kept.quantile == (0.9 if more else 0.5)


def test_several_quantiles(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(600)
    y = 2 * x + rng.exponential(size=600)
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *(f"{a},{b}" for a, b in zip(x, y))]) + "\n")
    model, options = tmp_path / "m.rfd", ("--loss", "quantile", "--quantile", "0.1, 0.5,0.9")
    done = run("train", tmp_path / "t.csv", *options, "-o", model, "--holdout", "0.2", "--json")
    assert done.status == 0, done.err
    kept = robustfd.load(model)
    assert kept.quantile == [0.1, 0.5, 0.9] and done.json["holdout_pinball_loss"] < 0.4
    lines = run("predict", model, tmp_path / "t.csv").out.splitlines()
    assert lines[0] == "prediction(0.1),prediction(0.5),prediction(0.9)"
    table = np.array([[float(value) for value in line.split(",")] for line in lines[1:]])
    np.testing.assert_allclose(table, kept.predict(x[:, None]))
    explained = run("predict", model, tmp_path / "t.csv", "--contributions").out.splitlines()
    assert '"contribution(a, 0.1)",intercept(0.1)' in explained[0]
    first = [float(value) for value in explained[1].split(",")]
    assert first[3] + first[4] == pytest.approx(first[0])
    scores = run("evaluate", model, tmp_path / "t.csv", "--json").json
    assert abs(scores["below_0.9"] - 0.9) < 0.05 and scores["pinball_loss"] < 0.4
    assert set(run("inspect", model, "--json").json["weights"]) == {"0.1", "0.5", "0.9"}
    more = run("train", tmp_path / "t.csv", "--from", model, *options, "-o", tmp_path / "more.rfd")
    assert more.status == 0, more.err
    done = run("train", tmp_path / "t.csv", *options, "--passes", 2, "-o", model)
    assert done.status == 0, done.err
    for text, said in (("0.1,x", "--quantile must be a number"), ("0.9,0.1", "increasing"), ("0.1,2", "must be in")):
        done = run("train", tmp_path / "t.csv", "--loss", "quantile", "--quantile", text, "-o", model)
        assert done.status in (1, 2) and said in done.err


@pytest.mark.parametrize(
    "said, spelt",
    [
        ("missing='zero' reads it as 0, drop=['a b'] ignores", "--missing zero reads it as 0, --drop a b ignores"),
        ("hash_bits must be at most 30, got 40.", "--hash-bits must be at most 30, got 40."),
        ("expected n_features=12.", "expected --features 12."),
        (
            "Leave it out (drop=, or columns= for those to keep).",
            "Leave it out (--drop, or --columns for those to keep).",
        ),
        ("columns=['a', 'b'] has the target in it, 'a'", "--columns a,b has the target in it, 'a'"),
        ("categories='onehot' and hash_bits=3: give one", "--categories onehot and --hash-bits 3: give one"),
        ("header=False, zero_based=True", "--no-header, --zero-based"),
        ("The column 'drop' is missing at 3=3.", "The column 'drop' is missing at 3=3."),
    ],
)
def test_messages_spell_options_as_the_command_does(said, spelt):
    assert as_options(said) == spelt


def test_inspect_ranks_by_effect_and_names_what_is_missing(run, tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(600):
        tiny, huge, gap = 1e-4 * rng.standard_normal(), 1e4 * rng.standard_normal(), rng.random() < 0.3
        y = 0.2 * tiny / 1e-4 + 2 * huge / 1e4 + 4 * gap
        lines.append(f"{tiny},{huge},{'' if gap else 1 + 0.1 * rng.standard_normal()},{y}")
    (tmp_path / "t.csv").write_text("\n".join(["tiny,huge,gappy,y", *lines]) + "\n")
    assert run("train", tmp_path / "t.csv", "-o", tmp_path / "m.rfd").status == 0
    found = run("inspect", tmp_path / "m.rfd", "--json").json["weights"][""]
    assert [each["feature"] for each in found[:2]] == ["huge", "gappy is missing"]
    sizes = {each["feature"]: each["effect"] for each in found}
    assert sizes["huge"] == pytest.approx(2, rel=0.2) and sizes["tiny"] == pytest.approx(0.2, rel=0.3)
    assert "gappy is missing" in run("inspect", tmp_path / "m.rfd").out


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_inspect_names_the_words_of_a_text(run, tmp_path, name):
    rng = np.random.default_rng(0)
    other = [f"word{k}" for k in range(50)]
    rows = []
    for k in range(600):
        said = " ".join(rng.permutation([("Good!", "bad,")[k % 2], *rng.choice(other, 10)]).tolist())
        rows.append({"review": said, "y": k % 2})
    lines = (
        ["review,y", *(f'"{row["review"]}",{row["y"]}' for row in rows)] if name == "t.csv" else map(json.dumps, rows)
    )
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    assert run("train", tmp_path / name, "-o", tmp_path / "m.rfd").status == 0
    found = run("inspect", tmp_path / "m.rfd", "--json").json["weights"]["1"]
    assert {each["feature"]: each["weight"] > 0 for each in found[:2]} == {"review=good": False, "review=bad": True}


def test_decimal_commas_are_said_and_may_be_denied(run, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f};{2 * a:.3f}".replace(".", ",") for a in rng.random(200)]
    (tmp_path / "t.csv").write_text("\n".join(["a;y", *rows]) + "\n")
    done = run("train", tmp_path / "t.csv", "-o", tmp_path / "m.rfd")
    assert done.status == 0 and "the commas in the numbers of 'a', 'y' are read as decimal commas" in done.err
    (tmp_path / "one.csv").write_text("a\n0,5\n")
    predicted = run("predict", tmp_path / "m.rfd", tmp_path / "one.csv").out.splitlines()
    assert float(predicted[1].split(",")[-1]) == pytest.approx(1.0, abs=0.05)
    done = run("train", tmp_path / "t.csv", "--decimal", ".", "--task", "regression", "-o", tmp_path / "m.rfd")
    assert done.status != 0
