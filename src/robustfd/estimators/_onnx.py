"""Models as ONNX graphs. They compute in double precision and make the predictions of the model, missing values too.

Inputs and outputs have the names that skl2onnx uses: X; `label` and `probabilities`, or `variable`.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from robustfd._core import INTERCEPT, NOISE, ROUND_OFF, STEEPNESS
from robustfd._validation import check_choice

OPSET, IR = 17, 8  # of 2022, so that runtimes of the last years read the file
INT64, DOUBLE = 7, 11  # numbers of types in ONNX
FAR, HUGE_ROW, LONGEST, ODD, SLACK = 100.0, 1e30, 1e100, 30.0, 0.1  # as in src/core/hot
LARGEST = 2**31 - 2**20  # bytes; protobuf has no larger files


class Exported:
    """An estimator with `to_onnx`."""

    def to_onnx(self, *, dtype: Literal["float32", "float64"] = "float32") -> Any:
        """Return the model as an ONNX graph that makes the same predictions, up to 1e-5.

        `SketchedNewtonClassifier` and `SketchedNewtonRegressor`, `SketchedPCA` and `SketchedRidge` can be exported,
        unless they learned from dicts or from tables with columns of text or dates, or have trees. The graph has the
        input "X" (rows, features). A classifier has the outputs "label" and "probabilities" (rows, classes), the others
        "variable". NaN is a missing value if it is one for the model. Needs the package onnx:
        `pip install 'robustfd[onnx]'`.

        Parameters
        ----------
        dtype : {"float32", "float64"}, default="float32"
            The type of the input and of probabilities and numbers. The graph computes in double precision. Use
            "float64" if float32 cannot represent the features, such as times in seconds.

        Returns
        -------
        onnx.ModelProto
            Write it with `onnx.save`, or its `SerializeToString()`.
        """
        check_choice("dtype", dtype, ("float32", "float64"))
        if getattr(self, "_has_trees", False):
            raise ValueError("A model with trees cannot be exported. Fit it with expand=None.")
        write = next((WRITERS[kind.__name__] for kind in type(self).__mro__ if kind.__name__ in WRITERS), None)
        if write is None:
            names = ", ".join(WRITERS)
            raise TypeError(f"A {type(self).__name__} cannot be exported to ONNX, only {names}.")
        _refuse(self)
        graph = _Graph(dtype)
        write(self, graph)
        return graph.model(type(self).__name__, self.n_features_in_)  # type: ignore[attr-defined]


def _refuse(model: Any) -> None:
    """Raise if the model has no rows, or if its rows are not numbers of a fixed width."""
    (getattr(model, "_require_rows", None) or model._fitted)()
    name = type(model).__name__
    if hasattr(model, "_encoder"):
        raise ValueError(
            f"This {name} cannot be exported to ONNX, because it learned from a table with columns of text or dates. "
            "Encode them as numbers before fit, and export both steps."
        )
    if model._kind in ("dicts", "pairs"):
        raise ValueError(
            f"This {name} cannot be exported to ONNX, because it learned from {model._kind}, which may have any "
            "features. Use fit or partial_fit with rows of numbers."
        )
    if len(getattr(model, "classes_", (0, 1))) < 2:
        raise ValueError(f"This {name} cannot be exported to ONNX, because it has seen only one class.")


class _Graph:
    """A graph that grows node by node. Values are names; constants are arrays or numbers, in double precision."""

    def __init__(self, dtype: str):
        try:
            import onnx
        except ImportError as error:
            raise ImportError("Exporting to ONNX needs the package onnx: pip install 'robustfd[onnx]'.") from error
        self._onnx, self._nodes, self._constants, self._outputs = onnx, [], [], []  # type: ignore[var-annotated]
        self._outer = getattr(onnx.TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}[dtype])
        self.x = self("Cast", "X", to=DOUBLE)

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = f"{op}_{len(self._nodes)}"
        outputs = [name, f"{name}_places"] if op == "TopK" else [name]
        self._nodes.append(self._onnx.helper.make_node(op, names, outputs, **attributes))
        return name

    def constant(self, value: Any) -> str:
        """Add an array and return its name."""
        array = np.asarray(value)
        array = array.astype(np.float64) if array.dtype.kind == "f" else array
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def output(self, name: str, value: str, columns: int | None, kind: int | None = None) -> None:
        """Add an output: numbers of these columns, or labels of this kind."""
        to = self._outer if kind is None else kind
        make = self._onnx.helper.make_node
        node = make("Cast", [value], [name], to=to) if kind is None else make("Identity", [value], [name])
        self._nodes.append(node)
        shape = [None] if columns is None else [None, columns]
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, to, shape))

    def labels(self, name: str, place: str, classes: Any) -> None:
        """Add an output of labels, by their places among the classes."""
        labels = np.asarray(classes.tolist())  # labels in an array of objects are all strings or all numbers
        kinds = {"U": "STRING", "i": "INT64", "u": "INT64", "b": "BOOL", "f": "DOUBLE"}
        if labels.dtype == np.uint64 or labels.dtype.kind not in kinds:
            raise ValueError(f"Labels {labels[:3]} of {labels.dtype} cannot be exported to ONNX.")
        labels = labels.astype({"U": object, "i": np.int64, "u": np.int64}.get(labels.dtype.kind, labels.dtype))
        found = self("Gather", labels, place)
        self.output(name, found, None, getattr(self._onnx.TensorProto, kinds[np.asarray(classes.tolist()).dtype.kind]))

    def model(self, name: str, d: int) -> Any:
        """Return the model of all nodes, checked."""
        if sum(len(each.raw_data) for each in self._constants) > LARGEST:
            raise ValueError("The model cannot be exported to ONNX: it takes more than 2 GB.")
        helper, rows = self._onnx.helper, self._onnx.helper.make_tensor_value_info("X", self._outer, [None, d])
        graph = helper.make_graph(self._nodes, name, [rows], self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="robustfd", ir_version=IR)
        self._onnx.checker.check_model(model)
        return model


# -- the untuned learners: src/core/hot/untuned.cpp has the same steps


def _scaled(model: Any, g: _Graph) -> tuple[str, str, str]:
    """Return zeta (rows, features), and the factors (rows, 1) for experts that divide by the length, and for others."""
    state, missing = model._model, model._missing
    features, d = state.experts.features, model.n_features_in_ + len(missing)
    table, totals = features.table[1 : d + 1], features.totals[0]
    x = g.x
    if missing:  # an indicator for each column that has had missing values
        there = g("Cast", g("IsNaN", g("Gather", x, np.array(missing, np.int64), axis=1)), to=DOUBLE)
        x = g("Concat", x, there, axis=1)
    centred, centre = table["number"] > 0, np.zeros(d)
    centre[centred] = features.centre[0][table["number"][centred] - 1]
    z = g("Sub", x, centre)
    near = g("LessOrEqual", g("Abs", z), ROUND_OFF * np.abs(centre))  # equal to a constant column
    z = g("Where", g("Or", near, g("IsNaN", z)), 0.0, z)
    zeta = g("Clip", g("Mul", z, table["inverse"]), -LONGEST, LONGEST)
    zeta = g("Where", g("And", centred, g("Greater", g("Abs", zeta), ODD)), 0.0, zeta)
    typical = np.exp(totals["logarithms"] / totals["log_weight"]) if totals["log_weight"] > 0 else 0.0
    new = table["inverse"] == 0  # features that have not occurred only make a row longer
    square = g("Mul", zeta, zeta)
    if new.any():
        other = g("Mul", z, z)
        other = g("Div", other, typical) if typical else g("Cast", g("Greater", other, 0.0), to=DOUBLE)
        square = g("Where", new, other, square)
    axes = np.array([1], np.int64)
    total = g("ReduceSum", square, axes, keepdims=1)
    zeta, total = g("Mul", zeta, g("Min", g("Sqrt", g("Div", HUGE_ROW, total)), 1.0)), g("Min", total, HUGE_ROW)
    listed = g("Or", centred, g("Not", g("Equal", x, 0.0)))
    n = g("ReduceSum", g("Cast", listed, to=DOUBLE), axes, keepdims=1)
    norm = g("Where", g("Greater", n, 0.0), g("Sqrt", g("Div", 2.0, g("Add", total, n))), 1.0)
    far = g("Sqrt", g("Div", g("Mul", n, FAR), g("Max", total, 1e-300)))
    length = g("Where", g("Greater", total, g("Mul", n, FAR)), far, 1.0)
    return zeta, norm, g("Mul", length, float(totals["length"]))


def _classifier(model: Any, g: _Graph) -> None:
    mix, (zeta, norm, length) = model._model.experts.mix, _scaled(model, g)
    w = model._model.all_weights()[: model.n_features_in_ + len(model._missing) + 1]
    linear = mix.linear > 0
    parts = [
        g("Mul", g("MatMul", zeta, np.einsum("fok,ok->fo", w[1:], mix.steady * kind)), factor)
        for kind, factor in ((~linear, norm), (linear, length))
    ]
    own = INTERCEPT * np.einsum("ok,ok->o", w[0], mix.steady) + (mix.follow[:, 0] * mix.follow[:, 1]).sum(axis=1)
    margins = g("Add", g("Add", *parts), own)
    if len(own) == 1:
        place = g("Cast", g("Greater", g("Squeeze", margins, np.array([1], np.int64)), 0.0), to=INT64)
        both = g("Concat", g("Neg", margins), margins, axis=1)
        parts = [  # as `recalibrated(margins, shares)` in _targets.py
            g("Add", g("Mul", g("Sigmoid", g("Mul", both, steepness)), share * (1 - noise)), share * noise / 2)
            for steepness, noise, share in zip(STEEPNESS, NOISE, model._calibration.tolist(), strict=True)
        ]
        chances = g("Div", g("Sum", *parts), float(model._calibration.sum()))
    else:  # as `mixed(np.exp(sharpened(margins)), losses)` in _targets.py
        place = g("ArgMax", margins, axis=1, keepdims=0)
        decay = g("Exp", g("Neg", g("Abs", margins)))
        least = g("Sub", g("Min", margins, 0.0), g("Log", g("Add", decay, 1.0)))  # the logarithm of the expit
        losses = model._calibration
        share = np.exp(losses.min() - losses)
        kinds = [g("Add", g("Mul", least, 1.0 - t), g("Mul", margins, float(t))) for t in model._sharpness]
        each = zip(kinds, share / share.sum(), strict=True)
        chances = g("Sum", *(g("Mul", g("Softmax", kind, axis=1), float(weight)) for kind, weight in each))
    g.labels("label", place, model.classes_)
    g.output("probabilities", chances, len(model.classes_))


def _regressor(model: Any, g: _Graph) -> None:
    mix, (zeta, _, length) = model._model.experts.mix, _scaled(model, g)
    weights = model._model.all_weights()[: model.n_features_in_ + len(model._missing) + 1]
    t = mix.targets[0]
    slack = SLACK * (t["high"] - t["low"])
    limits = (t["low"] - slack, t["high"] + slack) if t["low"] <= t["high"] else (-np.inf, np.inf)
    found = []
    for w, share, follow in zip(weights.transpose(1, 0, 2), mix.steady, mix.follow, strict=True):
        margins = g("Add", g("Mul", g("MatMul", zeta, w[1:]), length), INTERCEPT * w[0])
        mean = g("MatMul", g("Clip", margins, *map(float, limits)), share[:, None])
        found.append(g("Clip", g("Add", mean, float(follow[0] @ follow[1])), *map(float, limits)))
    n, out = len(found), found[0]
    if n > 1:  # several quantiles, in ascending order
        out = g("TopK", g("Concat", *found, axis=1), np.array([n], np.int64), axis=1, largest=0)
    if t["counts"]:
        out = g("Exp", out)
    g.output("variable", g("Add", g("Mul", out, float(t["unit"])), 0.0 if t["counts"] else float(t["offset"])), n)


# -- linear maps


def _pca(model: Any, g: _Graph) -> None:
    v, scale = np.asarray(model.components_, np.float64), np.ones(model.n_components_)
    if model.whiten:
        scale = np.sqrt(model.explained_variance_)
        scale[scale == 0.0] = np.inf
    g.output("variable", g("MatMul", g("Sub", g.x, model.mean_), v.T / scale), len(v))


def _ridge(model: Any, g: _Graph) -> None:
    w = np.atleast_2d(np.asarray(model.coef_, np.float64))
    intercept = np.broadcast_to(np.asarray(model.intercept_, np.float64), len(w))
    g.output("variable", g("Add", g("MatMul", g.x, w.T), intercept), len(w))


WRITERS: dict[str, Callable[[Any, _Graph], None]] = {
    "SketchedNewtonClassifier": _classifier,
    "SketchedNewtonRegressor": _regressor,
    "SketchedPCA": _pca,
    "SketchedRidge": _ridge,
}
