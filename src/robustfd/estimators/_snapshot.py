"""Snapshots of online estimators: learner states, class labels and feature names."""

import json
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Saved, Tensors
from robustfd._validation import check_choice
from robustfd.estimators._tables import load_encoder
from robustfd.learners.snapshot import Parts, pack_common, unpack_common

PLAIN = (str, int, float, bool)
LAST_LETTER = 0x10FFFF


class SavedEstimator(Saved):
    """Mixin that saves and loads online estimators."""

    @abstractmethod
    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        """Return the numbers and arrays of each learner state."""

    @abstractmethod
    def _unpack_states(self, states: list[Parts]) -> None:
        """Restore the learner states after checking their sizes with `_check_sizes`."""

    def _check_sizes(self: Any, d: int, outputs: int, *, sparse: bool) -> None:
        """Raise if the numbers of features and outputs of the states do not fit this model."""
        growing, width, classes = self._kind != "rows", self.n_features_in_, len(getattr(self, "classes_", ()))
        if outputs != (classes if classes > 2 else 1):
            raise ValueError(f"{outputs} outputs for {classes} classes")
        if d < width or (d > width and not growing) or (growing and not sparse):
            raise ValueError(f"{d} features for {self._kind} of {width}, sparse {sparse}")

    def _pack(self: Any) -> tuple[Document, Tensors]:
        self._require_rows()
        self._working_copy(reset=False)  # raises if parameters were changed
        document, tensors = pack_common(self, self._pack_states())
        document |= {"rows": self._kind, "open": getattr(self, "_classes_open", False)}
        if hasattr(self, "_encoder"):
            document["table"] = self._encoder.layout
        if self._has_classes:
            _pack_classes(self.classes_, document, tensors)
        if hasattr(self, "_vocabulary"):
            names = [plain_label("The feature", name) for name in sorted(self._vocabulary, key=self._vocabulary.get)]
            tensors["vocabulary"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
        return document, tensors

    def _unpack(self: Any, document: Document, tensors: Tensors) -> None:
        self._check_parameters()
        self._seen_parameters, self._kind, opened = self._parameters(), document.pop("rows"), document.pop("open")
        if (layout := document.pop("table", None)) is not None:
            self._encoder = load_encoder(layout)
        check_choice("rows", self._kind, ("rows", "dicts", "pairs"))
        check_choice("open", opened, (True, False))
        if opened:
            self._classes_open = True
        elif self._kind != "rows":
            raise ValueError(f"the model was started with {self._kind}, but classes are not open")
        if self._has_classes:
            self.classes_ = _unpack_classes(document, tensors)
            if len(self.classes_) < (1 if opened else 2):
                raise ValueError("there are too few classes")
        if self._kind == "dicts":
            self._vocabulary = _unpack_names(tensors.pop("vocabulary"))
        states = unpack_common(self, document, tensors)
        if len(getattr(self, "_vocabulary", ())) > self.n_features_in_:
            raise ValueError("there are more names than features")
        if hasattr(self, "_encoder") and self._encoder.n_features != self.n_features_in_:
            raise ValueError(f"a table of {self._encoder.n_features} features, not {self.n_features_in_}")
        self._unpack_states(states)
        if tensors:
            raise ValueError(f"unknown tensors {sorted(tensors)}")


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
        raise TypeError(
            f"Labels of {classes.dtype} cannot be saved: a snapshot can hold only str, int, float and bool."
        )


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
