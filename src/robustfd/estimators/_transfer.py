"""Parts and copies of online estimators: merging, splitting and snapshots."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors
from robustfd._validation import check_choice, check_same_features, check_same_params
from robustfd.estimators._rows import width_of
from robustfd.learners import expansion_transfer, progress
from robustfd.learners.snapshot import Parts, pack_common, unpack_common
from robustfd.streams.layout import without_names

PLAIN = (str, int, float, bool)
LAST_LETTER = 0x10FFFF


# -- merging; it builds a new state and never changes arrays in place


def merge_into(model: Any, other: Any) -> Any:
    """Merge another model into this one and return it. An error leaves both unchanged."""
    _check_mergeable(model, other)
    after, share = model._shallow_copy(), getattr(other, "_share", 0.0)
    if not other.__sklearn_is_fitted__():
        after._add_prior_share(share)
    elif not model.__sklearn_is_fitted__():
        after.__dict__.update({name: vars(other)[name] for name in other._learned_names()})
        after._seen_parameters = after._parameters()
        after._add_prior_share(getattr(model, "_share", 0.0))
    else:
        after._merge_states(other)
        after._progress = progress.joined(model._progress, other._progress)
    if hasattr(model, "_share"):
        after._share = min(model._share + share, 1.0)
    model.__dict__ = after.__dict__
    return model


def some_parts(model: Any, k: int, which: Sequence[int]) -> list[Any]:
    """Return the parts `which` of k parts of a model."""
    parts, fitted = [copy.copy(model) for _ in which], model.__sklearn_is_fitted__()
    model._working_copy(reset=not fitted)  # raises if parameters are invalid or changed
    states = model._split_states(k, which) if fitted else [{} for _ in which]
    for i, part, state in zip(which, parts, states, strict=True):
        part.__dict__.update(state)
        part._share = getattr(model, "_share", 1.0) / k
        if fitted:
            part._progress = progress.fraction(model._progress, k, i)
    return parts


def _check_mergeable(model: Any, other: Any) -> None:
    """Raise if the other model cannot be merged with this one."""
    if type(other) is not type(model):
        raise TypeError(f"Cannot merge a {type(model).__name__} with a {type(other).__name__}.")
    mine, theirs = model._parameters(), other._parameters()
    check_same_params("models", {name: mine[name] for name in mine if name not in model._free_to_differ}, theirs)
    fitted = [each.__sklearn_is_fitted__() for each in (model, other)]
    for each, has_rows in zip((model, other), fitted, strict=True):
        each._working_copy(reset=not has_rows)  # raises if parameters are invalid or changed
    if not all(fitted):
        return
    if model._kind != other._kind:
        raise ValueError(f"Cannot merge a model started with {model._kind} with one started with {other._kind}.")
    if model._has_classes and not np.array_equal(model.classes_, other.classes_):
        raise ValueError(
            f"Cannot merge models of different classes: {model.classes_} here, {other.classes_} there. "
            "Give all classes to the first call of partial_fit of both."
        )
    if model._kind == "rows":
        check_same_features("models", model, other)
    layouts = [without_names(each._encoder.layout) if hasattr(each, "_encoder") else None for each in (model, other)]
    if layouts[0] != layouts[1]:
        raise ValueError(
            "Cannot merge models of tables whose columns were encoded differently. "
            "Fit one model to some rows of the table and split it."
        )


# -- snapshots: learner states, class labels and feature names


def pack(model: Any) -> tuple[Document, Tensors]:
    """Return the document and the tensors of a model."""
    model._require_rows()
    model._working_copy(reset=False)  # raises if parameters were changed
    document, tensors = pack_common(model, model._pack_states())
    document |= {"rows": model._kind, "open": getattr(model, "_classes_open", False)}
    if hasattr(model, "_encoder"):
        document["table"] = model._encoder.layout
    if hasattr(model, "_expansion"):
        document["expansion"], more = expansion_transfer.pack(model._expansion)
        tensors |= {f"expansion.{name}": array for name, array in more.items()}
    if model._has_classes:
        _pack_classes(model.classes_, document, tensors)
    if hasattr(model, "_vocabulary"):
        names = [plain_label("The feature", name) for name in sorted(model._vocabulary, key=model._vocabulary.get)]
        tensors["vocabulary"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    return document, tensors


def unpack(model: Any, document: Document, tensors: Tensors) -> None:
    """Restore a model that has its parameters and nothing else."""
    model._check_parameters()
    model._seen_parameters, model._kind, opened = model._parameters(), document.pop("rows"), document.pop("open")
    if (layout := document.pop("table", None)) is not None:
        from robustfd.streams import TableEncoder

        model._encoder = TableEncoder(layout)
    check_choice("rows", model._kind, ("rows", "dicts", "pairs"))
    check_choice("open", opened, (True, False))
    if opened:
        model._classes_open = True
    elif model._kind != "rows":
        raise ValueError(f"the model was started with {model._kind}, but classes are not open")
    if model._has_classes:
        model.classes_ = _unpack_classes(document, tensors)
        if len(model.classes_) < (1 if opened else 2):
            raise ValueError("there are too few classes")
    if model._kind == "dicts":
        model._vocabulary = _unpack_names(tensors.pop("vocabulary"))
    expansion = document.pop("expansion", None)
    states = unpack_common(model, document, tensors)
    if len(getattr(model, "_vocabulary", ())) > model.n_features_in_:
        raise ValueError("there are more names than features")
    if hasattr(model, "_encoder") and model._encoder.column_names != list(getattr(model, "feature_names_in_", ())):
        raise ValueError("the table has other columns than the model")
    model._unpack_states(states)
    if getattr(model, "expand", None) is not None:
        model._unpack_trees(Parts(expansion, tensors, "expansion."))
    if tensors:
        raise ValueError(f"unknown tensors {sorted(tensors)}")


def check_sizes(model: Any, d: int, outputs: int, *, sparse: bool) -> None:
    """Raise if the numbers of features and outputs of saved states do not fit the model."""
    growing, width = model._kind != "rows", width_of(model)
    if outputs != model._outputs:
        raise ValueError(f"{outputs} outputs, not {model._outputs}")
    if d < width or (d > width and not growing) or (growing and not sparse):
        raise ValueError(f"{d} features for {model._kind} of {width}, sparse {sparse}")


def plain_label(what: str, value: Any) -> Any:
    """Return a label or a feature name as a type that JSON can represent."""
    value = value.item() if isinstance(value, np.generic) else value
    if type(value) not in PLAIN or value != value:
        raise TypeError(f"{what} {value!r} cannot be saved: a snapshot can hold only str, int, float and bool.")
    return value


def _pack_classes(classes: NDArray[Any], document: Document, tensors: Tensors) -> None:
    """Add the labels to the tensors, or to the document if they are Python objects."""
    kind = classes.dtype.kind
    if kind == "O":
        document["classes"] = [plain_label("The label", label) for label in classes]
    elif kind == "U":  # one row of code points per label
        letters = np.ascontiguousarray(classes, classes.dtype.newbyteorder("<")).view("<u4")
        tensors["classes"] = letters.reshape(len(classes), -1)
    elif kind in "biuf" and classes.dtype.itemsize <= 8:
        tensors["classes"] = classes
    else:
        raise TypeError(f"Labels of {classes.dtype} cannot be saved: a snapshot can hold only str, int, float, bool.")


def _unpack_classes(document: Document, tensors: Tensors) -> NDArray[Any]:
    """Return the labels."""
    if "classes" in document:
        labels = document.pop("classes")
        if not isinstance(labels, list) or any(type(label) not in PLAIN for label in labels):
            raise ValueError("a label is neither a string nor a number")
        classes = np.empty(len(labels), dtype=object)
        classes[:] = labels
        if len(set(labels)) != len(labels):
            raise ValueError("a label is twice among the classes")
        return classes
    numbers = tensors.pop("classes")
    if numbers.ndim == 2 and numbers.dtype == np.uint32 and numbers.shape[1] > 0:
        if numbers.max(initial=0) > LAST_LETTER:
            raise ValueError("a label is not a valid string")
        classes = np.ascontiguousarray(numbers).view(f"<U{numbers.shape[1]}")[:, 0]
    elif numbers.ndim == 1 and np.isfinite(numbers).all():
        classes = numbers
    else:
        raise ValueError(f"classes have shape {numbers.shape} and dtype {numbers.dtype}")
    if classes.dtype == np.bool_ and classes.view(np.uint8).max(initial=0) > 1:
        raise ValueError("a label is neither true nor false")
    if len(np.unique(classes)) != len(classes):
        raise ValueError("a label is twice among the classes")
    return classes


def _unpack_names(text: NDArray[Any]) -> dict[Any, int]:
    """Return the index of each feature by name."""
    names = json.loads(text.tobytes()) if text.dtype == np.uint8 and text.ndim == 1 else None
    if not isinstance(names, list) or any(type(name) not in PLAIN for name in names):
        raise ValueError("the vocabulary is not a list of names")
    vocabulary = {name: i for i, name in enumerate(names)}
    if len(vocabulary) != len(names):
        raise ValueError("the vocabulary has a duplicate name")
    return vocabulary
