"""Verdicts agree with the numbers."""

import re

import pytest

from robustfd.experiments import accuracy, bandits, cost, error, online, regret, sensitivity
from robustfd.experiments.cells import Verdict, cell, listed, power
from robustfd.experiments.reproduce import Section, page


def statuses(verdicts):
    return [verdict.status for verdict in verdicts]


# ------------------------------------------------------------------ accuracy


def passes(method, m, values, *, data="a9a", order=None, seed=None, of=9769):
    """Return results of passes with these numbers of correct rows (None: diverged) for alpha0 = 1, 10, ..."""
    out = {}
    for k, right in enumerate(values):
        each = cell("pass", data, effort=1.0, method=method, m=m, alpha0=10.0**k, order=order, seed=seed)
        out[each] = {"diverged": True}
        if right is not None:
            curve = {"rows": [5, 9], "error": [40.0, 20.0]}
            out[each] = {"diverged": False, "right": right, "of": of, "accuracy": 100 * right / of, "curve": curve}
    return out


SIZES = passes("fd", 5, [8172]) | passes("fd", 10, [8174]) | passes("fd", 20, [8175])  # the first two are as printed


def test_the_best_alpha0_counts_and_diverged_ones_do_not():
    rows = accuracy.table(SIZES | passes("fd", 5, [None, 8000, 8172, 8172, None]))
    assert rows[0]["alpha0"] == 100.0
    assert rows[0]["ours"] == pytest.approx(83.6524, abs=5e-5)
    assert [row["verdict"] for row in rows] == ["equal", "equal", "better"]


def test_cells_that_must_be_equal_fail_by_one_row():
    good = accuracy.verdicts(accuracy.table(SIZES))
    assert statuses(good) == ["holds", "holds"]
    assert "m₃ looks copied" in good[1].reason
    bad = accuracy.verdicts(accuracy.table(SIZES | passes("fd", 5, [8171])))
    assert statuses(bad) == ["fails", "holds"]
    assert "83.6421 for 83.6524" in bad[0].reason


def test_other_cells_fail_if_they_are_more_than_a_point_below():
    assert statuses(accuracy.verdicts(accuracy.table(SIZES | passes("full", None, [8100])))) == ["holds", "holds"]
    bad = accuracy.verdicts(accuracy.table(SIZES | passes("full", None, [8000])))
    assert statuses(bad) == ["holds", "fails"]
    assert "FULL-ON is off by −1.93" in bad[1].reason


def test_all_diverged_is_no_accuracy():
    (row,) = accuracy.table(passes("full", None, [None, None]) | passes("full", None, [None], seed=3))
    assert row["ours"] is None
    assert row["verdict"] in ("", "off")


def test_seeds_are_averaged_and_orders_have_a_spread():
    results = passes("rp", 5, [8000, 8100], seed=0) | passes("rp", 5, [8200, 8100], seed=1) | SIZES
    results |= passes("rp", 5, [8000], order=0, seed=0) | passes("rp", 5, [8004], order=1, seed=1)
    row = next(row for row in accuracy.table(results) if row["method"] == "rp")
    assert row["ours"] == pytest.approx(100 * 8150 / 9769)
    assert (row["seeds"], row["orders"]) == (2, 2)
    assert row["orders_mean"] == pytest.approx(100 * 8002 / 9769)
    assert row["orders_sd"] == pytest.approx(100 * 2 * 2**0.5 / 9769)


def test_other_rows_than_the_papers_are_not_compared():
    verdicts = accuracy.verdicts(accuracy.table(passes("fd", 5, [90], of=100)))
    assert statuses(verdicts) == ["differs"]
    assert "no numbers for these rows" in verdicts[0].reason


# ------------------------------------------------------------------ sensitivity and online


def test_a_diverged_run_is_never_an_error_rate():
    results = passes("fd", 5, [None, 8172]) | passes("rfd", 5, [8172, 8170]) | passes("rfd0", 5, [8172])
    rows = sensitivity.table(results)
    assert [row["test_error"] is None for row in rows] == [True, False, False, False, False]
    small, unmoved, baselines, untuned = sensitivity.verdicts(rows)
    assert statuses((small, unmoved, baselines, untuned)) == ["holds"] * 4
    assert "1 diverge" in baselines.found
    assert not [row for row in online.table(results) if row["method"] == "fd" and row["alpha0"] == 1.0]


def test_a_sensitive_rfd_is_noticed():
    rows = sensitivity.table(passes("rfd", 5, [8172, 7000]) | passes("rfd0", 5, [8172]))
    small, unmoved, *_ = sensitivity.verdicts(rows)
    assert (small.status, unmoved.status) == ("holds", "fails")  # 1 is small, 10 is not
    assert "by at most 1 point up to 1." in unmoved.reason
    rows = sensitivity.table(passes("rfd", 5, [7000, 8172]) | passes("rfd0", 5, [8172]))
    assert statuses(sensitivity.verdicts(rows)[:2]) == ["differs", "fails"]


def test_the_paper_says_of_four_data_sets_only_that_alpha0_does_not_matter():
    rows = sensitivity.table(passes("rfd", 5, [8172, 7000]) | passes("rfd0", 5, [8172]))
    other = [{**row, "data": "rcv1-subsets"} for row in rows]
    assert not [each for each in sensitivity.verdicts(other) if "almost no effect" in each.claim]


# ------------------------------------------------------------------ error


def sketch_row(method, value, **more):
    row = {"data": "x", "method": method, "beta": None, "m": 5, "error": value, "certificate": 0.2, "bound": 0.3}
    return {**row, "least": 0.0, "largest": value, **more}


def test_rfd_at_half_of_fd_holds_and_above_it_has_a_reason():
    rows = [sketch_row("fd", 0.19), sketch_row("rfd", 0.1), sketch_row("cfd", 0.15)]
    assert statuses(error.verdicts(rows)) == ["holds", "holds", "holds"]
    rows[1] = sketch_row("rfd", 0.17)
    half, below, _ = error.verdicts(rows)
    assert half.status == "differs"
    assert "Above 0.6 for m = 5" in half.reason
    assert below.status == "differs"
    assert "CFD, m = 5" in below.reason


def test_an_error_above_its_certificate_fails():
    rows = [sketch_row("fd", 0.19), sketch_row("rfd", 0.1, certificate=0.09)]
    assert error.verdicts(rows)[-1].status == "fails"


# ------------------------------------------------------------------ regret and cost


def test_regret_above_the_bound_fails():
    row = {"data": "x", "method": "rfd", "m": 5, "dimension": 9, "alpha0": 1.0, "rows": 10, "regret": 5.0, "bound": 9.0,
           "printed": 4.0, "fast_regret": 5.0, "loss": 9.0, "best_loss": 4.0, "gap": 0.0}  # fmt: skip
    rows = [row, {**row, "method": "fd", "printed": None}, {**row, "method": "fd", "alpha0": 1e-3, "bound": 900.0}]
    assert statuses(regret.verdicts(rows)) == ["holds", "holds", "differs"]
    assert regret.verdicts([{**row, "bound": 4.0}, *rows[1:]])[0].status == "fails"


def test_cost_is_compared_within_a_run():
    results = {
        cell("cost", "a9a", effort=1.0, method=method, m=5, repeats=2): {
            "seconds": seconds, "adagrad_seconds": 0.5, "rows": 1000,
        }
        for method, seconds in (("fd", 2.0), ("rfd", 4.0))
    }  # fmt: skip
    rows = cost.table(results)
    assert [row["ratio"] for row in rows] == [4.0, 8.0]
    assert rows[0]["paper_ratio"] == pytest.approx(2.8552 / 0.98279)
    assert statuses(cost.verdicts(rows)) == ["differs", "differs"]


# ------------------------------------------------------------------ bandits


def bandit_cells(rounds=30, **numbers):
    """Return results of both seeds of a problem, with these regrets in the end."""
    return {
        cell("bandits", "d = 100, 10 arms, flat", effort=1.0, method=method, seed=seed, rounds=rounds): {
            "rounds": [1, rounds], "regret": [1.0, numbers.get(method.replace(", ", "_"), 9.0) + seed], "m": 40,
            "numbers": numbers.get("numbers", 10_000),
        }
        for method in bandits.METHODS for seed in range(2)
    }  # fmt: skip


def test_growing_sketches_are_compared_with_the_exact_matrix():
    rows = bandits.table(bandit_cells(exact=5.5, RFD_grows=8.4, RFD=3.0))
    assert statuses(bandits.verdicts(rows)) == ["holds", "holds"]  # 8.9 / 6.0 = 1.48
    (shown,) = bandits.display(rows)
    assert shown.rows == [["d = 100, 10 arms, flat", "30", "2", "6.0", "9.5", "9.5", "3.5", "8.9", "1.48", "40"]]
    assert len(shown.header) == len(shown.rows[0])
    assert statuses(bandits.verdicts(bandits.table(bandit_cells(exact=5.5, RFD_grows=9.0)))) == ["fails", "holds"]
    said = bandits.summary(rows)
    assert said["d = 100, 10 arms, flat: last m"] == 40 and said["d = 100, 10 arms, flat: exact matrix"] == 6.0
    assert said["RFD, doubled to the exact matrix, most"] == pytest.approx(8.9 / 6)
    assert said["memory in m (d + K) numbers, least"] == 10_000 / (40 * 110)
    large = bandits.verdicts(bandits.table(bandit_cells(exact=9.0, RFD=10.0, numbers=40 * 110 * 9)))
    assert statuses(large) == ["fails", "differs"] and "9.0 m (d + K)" in large[0].found


def test_missing_cells_of_bandits_leave_gaps():
    rows = bandits.table({c: r for c, r in bandit_cells().items() if c["method"] != "exact"})
    assert statuses(bandits.verdicts(rows)) == ["holds"] and bandits.display(rows)[0].rows[0][3] == ""


def test_a_cell_of_bandits_is_a_run_of_the_bandit():
    each = cell("bandits", "d = 100, 10 arms, 1/i", effort=1.0, method="RFD, grows", seed=3, rounds=150)
    found = bandits.run(each)
    case = bandits.CASES[each.data]._replace(rounds=150)
    curve, bandit = bandits.play(case, 3)
    assert found["regret"][-1] == curve[-1] > 0 and found["rounds"][-1] == 150 and found["m"] == bandit.sketch_size_
    assert (curve[1:] >= curve[:-1]).all() and len(found["rounds"]) == bandits.POINTS
    arrays = bandit._state.stack.size + bandit._state.chol.size
    assert arrays < found["numbers"] < arrays + 2 * case.d + 500
    full, quick = (bandits.cells(quick=quick) for quick in (False, True))
    assert {c.data for c in full} == {c.data for c in quick} == set(bandits.CASES) and len(full) > len(quick)
    assert sum(c.effort for c in quick) < 0.2 * sum(c.effort for c in full)


# ------------------------------------------------------------------ words


def test_words():
    assert [power(x) for x in (0.0, 1.0, 10.0, 1e-3, 1e6)] == ["0", "1", "10", "10⁻³", "10⁶"]
    assert listed(list("abc")) == "a, b, c"
    assert listed(list("abc"), most=2) == "a, b, 1 more"


@pytest.mark.parametrize(
    "counts, said",
    [
        ((26, 7, 0), "Of 33 claims, 26 hold, 7 differ from what the paper prints, with the reason, and none fails."),
        ((1, 0, 2), "Of 3 claims, 1 holds, none differs from what the paper prints, with the reason, and 2 fail."),
    ],
)
def test_the_report_says_in_a_sentence_what_holds(counts, said):
    pytest.importorskip("jinja2")
    verdicts = [
        Verdict(status, "a", "b", "c") for status, k in zip(("holds", "differs", "fails"), counts) for _ in range(k)
    ]
    about = {"data": [], "machine": {"robustfd": "1"}, "began": "", "seconds": 1, "jobs": 1}
    text = page([Section("error", "Error", "It is small.", [{"m": 1}], verdicts, [], [])], about, [])
    assert said in " ".join(re.sub("<.*?>", "", text).split())
