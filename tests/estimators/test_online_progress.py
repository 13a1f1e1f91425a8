"""Progressive loss and error, recomputed from predictions one row at a time."""

import matplotlib
import numpy as np
import pytest

from tests.estimators.online_faces import as_while_learning, every_face, in_batches, targets

matplotlib.use("Agg")


@every_face
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_progress_is_what_predictions_one_row_at_a_time_were(make, classification, classes, weighted):
    X, y = targets(classification, classes=classes)
    weight = np.random.default_rng(0).integers(0, 4, 200) / 2 if weighted else np.ones(200)
    weight[0] = 1.0
    model, wrong, losses = make(), np.full(200, np.nan), np.full(200, np.nan)
    for i in range(200):
        if i:
            with as_while_learning(model):
                found = model.predict(X[i : i + 1])[0]
                chances = model.predict_proba(X[i : i + 1])[0] if classification else None
            if classification:
                wrong[i] = found != y[i]
                losses[i] = -np.log(max(chances[y[i]], 1e-300))
            else:
                losses[i] = (found - y[i]) ** 2
        extra = {"classes": np.arange(classes)} if classification else {}
        model.partial_fit(X[i : i + 1], y[i : i + 1], sample_weight=weight[i : i + 1], **extra)
    whole = in_batches(make(), X, y, [3, 90], weight=weight, classes=np.arange(classes))
    seen = weight > 0
    if classification:
        wrong[0] = whole.progressive_["error"][0]  # the first prediction is arbitrary
        assert whole.progressive_error_ == pytest.approx(np.average(wrong[seen], weights=weight[seen]))
    losses[0] = whole.progressive_["loss"][0]
    if not classification:
        assert losses[0] == y[0] ** 2
    elif "Sketched" in str(whole):
        assert losses[0] == pytest.approx(np.log(classes))
    if not classification or "Sketched" in str(whole):  # RFD-SON reports its own loss
        assert whole.progressive_loss_ == pytest.approx(np.average(losses[seen], weights=weight[seen]), rel=1e-6)
    table = whole.progressive_
    rows = table["rows"]
    assert list(rows) == [2**k for k in range(int(np.log2(seen.sum())) + 1)] + [seen.sum()]
    assert whole.n_samples_seen_ == seen.sum()
    if classification:
        expected = [np.average(wrong[seen][:n], weights=weight[seen][:n]) for n in rows]
        np.testing.assert_allclose(table["error"], expected)
        assert table["error"][-1] == whole.progressive_error_
    else:
        assert "error" not in table and not hasattr(whole, "progressive_error_")
        expected = [np.average(losses[seen][:n], weights=weight[seen][:n]) for n in rows]
        np.testing.assert_allclose(table["loss"], expected, rtol=1e-6)
    assert table["loss"][-1] == whole.progressive_loss_


@every_face
def test_plot(make, classification):
    import matplotlib.pyplot as plt

    X, y = targets(classification)
    model = make().fit(X, y)
    ax = model.plot_progress()
    labels = [line.get_label() for line in ax.lines]
    assert len(labels) == (2 if classification else 1) and all(label.startswith("progressive ") for label in labels)
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), model.progressive_["loss"])
    same = make().fit(X, y).plot_progress(ax=ax, label="again")
    assert same is ax and ax.lines[-1].get_label().startswith("again: progressive ")
    assert labels[-1].endswith(f" {model.progressive_loss_:.4g}")
    assert ax.get_xlabel() == "rows seen" and ax.get_yscale() == ("linear" if classification else "log")
    assert bool(ax.get_ylim()[0] == 0) is classification
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1  # the legend covers no data
    top = max(line.get_ydata().max() for line in ax.lines)
    assert ax.get_ylim()[1] >= top
    plt.close(ax.figure)
