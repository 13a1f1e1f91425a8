"""States of the paper's learners: the common base, and the methods that learn one row at a time."""

import copy
import json
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

import robustfd._core as _core
from robustfd._container import Document, Tensors
from robustfd.learners.rows import GROWTH, LARGEST, LARGEST_NUMBER, Floats
from robustfd.learners.snapshot import Parts, check_finite

NOT_NEGATIVE = ("squares", "energy")  # arrays that hold no negative numbers


class Settings(NamedTuple):
    """The settings of a learner, in the order of the core. The rate at row t is rate / t^power."""

    loss: int
    delta: float  # threshold of the Huber loss
    bound: float
    projection: int
    mu: float = 0.0
    rate: float = 1.0
    power: float = 0.0
    alpha0: float = 0.0
    shrink_first: bool = False  # whether the row that fills a block takes its step after the shrink
    shrunk: int = 0  # how many of the m largest eigenvalues a shrink reduces
    added: float = 0.0  # a shrink by delta increases alpha by this number times delta
    root: int = 0  # of the matrix that divides gradients: 0 none, 1 of B'B + alpha I, 2 of B'B


class CoreState:
    """Settings and a learner of the compiled core, which owns the arrays; learner.State documents the methods."""

    def __init__(self, settings: Settings, core: Any, *, sparse: bool):
        self.settings, self.core, self.sparse = settings, core, sparse

    @property
    def d(self) -> int:
        """Number of features for which memory is allocated."""
        return int(self.core.d)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays of the learner, as views that are valid until it learns again."""
        arrays: dict[str, Any] = self.core.arrays()
        return arrays

    @property
    def checks_rows(self) -> bool:
        """Whether `learn_few` may be used."""
        return not self.sparse

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats | None) -> int:
        """Learn from rows and record their losses; return the number of rows before an overflow."""
        rows = (x.data, x.indices, x.indptr) if self.sparse else x
        return int(self.core.learn(rows, y, weight, margins, progress, self._normal(len(y))))

    def learn_few(self, x: Floats, y: Floats, margins: Floats, progress: Floats) -> bool:
        """Learn from a few dense rows; return False, without a change, if they need a closer look."""
        return bool(self.core.learn_few(x, y, margins, progress, self._normal(len(y))))

    def _normal(self, rows: int) -> Floats | None:
        """Return the random numbers of these rows, if the method needs some."""
        return None

    def begin(self) -> None:
        """Begin a call that `rollback` can revert."""
        self.core.begin()

    def commit(self) -> None:
        """End the call."""
        self.core.commit()

    def rollback(self) -> None:
        """Revert everything since `begin`."""
        self.core.rollback()

    def margins(self: Any, x: Any) -> Floats:
        """Return w'x of dense or sparse rows."""
        return np.asarray(x @ self.weights())

    # -- copies

    def __deepcopy__(self, memo: Any) -> Self:
        new = type(self).__new__(type(self))
        vars(new).update(vars(self) | {"core": self.core.copy()})
        return new

    def __reduce__(self: Any) -> tuple[Any, ...]:
        numbers, arrays = self.pack()
        check_finite(type(self).__name__, arrays)
        return _restored, (type(self), (self.settings, *self._sizes()), numbers, arrays)


def _restored(kind: Any, arguments: tuple[Any, ...], numbers: Document, arrays: Tensors) -> Any:
    """Return the state that was packed."""
    parts = Parts(dict(numbers), dict(arrays), "")
    return kind.unpack(parts, *arguments, sparse=parts.flag("sparse"))


def all_finite(arrays: Any) -> bool:
    """Return whether all numbers of all arrays are finite."""
    return all(bool(np.isfinite(each).all()) for each in arrays)


def largest(*arrays: Any) -> float:
    """Return the largest absolute value in the arrays."""
    return max((float(np.abs(each).max(initial=0.0)) for each in arrays), default=0.0)


class RowState(CoreState):
    """Base class of the methods without blocks. The weights are w, or v + B'c."""

    method: ClassVar[_core.Method]
    # The shapes of the arrays. Each letter is a length: d features, m rows of the sketch.
    shapes: ClassVar[dict[str, str]]
    basis: ClassVar[str] = ""  # the name of B'
    sums: ClassVar[tuple[str, ...]] = ()  # arrays that are sums over rows

    def __init__(self, settings: Settings, d: int, m: int = 0, generator: Any = None, *, sparse: bool):
        core = _core.RowModel(self.method, _core.PaperSettings(*settings), d, m)
        super().__init__(settings, core, sparse=sparse)

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return self.settings.alpha0

    def is_sound(self) -> bool:
        """Return whether all numbers are finite, and leave space for ordinary rows."""
        if not self.core.extreme:
            return True
        with np.errstate(all="ignore"):  # the check below finds overflows
            arrays = [*self.arrays.values(), self.weights()]
        if not all_finite(arrays):
            return False
        after, before = largest(*arrays), self.core.copy()
        before.rollback()
        if self.settings.alpha0 == 0.0 or before.seen == 0:  # without alpha0, numbers have no natural scale
            return after <= LARGEST  # margins of all valid rows are finite
        return after <= LARGEST_NUMBER or after <= GROWTH * largest(*before.arrays().values())

    def weights(self) -> Floats:
        """Return w."""
        arrays = self.arrays
        return np.asarray(arrays["v"] + arrays[self.basis] @ arrays["c"]) if self.basis else arrays["w"].copy()

    # -- merging

    def merged(self, other: Any, vote: Floats) -> Self:
        """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
        w = np.asarray(vote @ np.array([state.weights() for state in (self, other)]))
        return self._with(int(self.core.seen + other.core.seen), self._merged_arrays(other.arrays, w))

    def fraction(self, k: int, i: int) -> Self:
        """Return part i of k, with the same weights and a k-th of all sums."""
        return self._with((int(self.core.seen) + k - 1 - i) // k, self._divided_arrays(k))

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        """Return the arrays of the merged model with the weights w."""
        return {"w": w} | {name: self.arrays[name] + other[name] for name in self.sums}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        """Return the arrays of the model that change when it is split into k parts."""
        return {name: self.arrays[name] / k for name in self.sums}

    def _with(self, seen: int, arrays: dict[str, Floats]) -> Self:
        """Return a copy with these arrays and this number of rows."""
        new = copy.deepcopy(self)
        new._fill(seen, arrays)
        return new

    def _fill(self, seen: int, arrays: dict[str, Floats]) -> None:
        self.core.seen, views = seen, self.arrays
        for name, array in arrays.items():
            views[name][:] = array

    # -- snapshots

    def _sizes(self) -> tuple[int, ...]:
        return self.d, int(self.core.m)

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        return {"sparse": bool(self.sparse), "seen": int(self.core.seen)}, arrays

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int = 0, _: Any = None, *, sparse: bool) -> Self:
        """Return the state in a snapshot of a learner with these settings and sizes."""
        lengths = {"d": d, "m": m}
        shapes = {name: tuple(lengths[letter] for letter in letters) for name, letters in cls.shapes.items()}
        for name, shape in shapes.items():  # before memory is allocated
            if parts.shape(name, len(shape)) != shape:
                raise ValueError(f"{name} has shape {parts.shape(name, len(shape))}, expected {shape}")
        self = cls(settings, d, m, sparse=sparse)
        arrays = {
            name: parts.array(name, *shape, least=0.0 if name in NOT_NEGATIVE else -np.inf)
            for name, shape in shapes.items()
        }
        self._fill(parts.count("seen"), arrays)
        self._unpack_more(parts)
        parts.close()
        return self

    def _unpack_more(self, parts: Parts) -> None:
        """Restore what is not in the arrays."""


class AdaGradState(RowState):
    """The state of ADAGRAD: the weights and the sums S of squared gradients."""

    method = _core.Method.adagrad
    shapes = {"w": "d", "squares": "d"}
    sums = ("squares",)


class DescentState(RowState):
    """The state of gradient descent: the weights."""

    method = _core.Method.descent
    shapes = {"w": "d"}


class ProjectionState(RowState):
    """The state of RP-SON (Luo et al. 2016), with the generator of its random numbers."""

    method, basis = _core.Method.projection, "bt"
    shapes = {"v": "d", "bt": "dm", "c": "m", "gram": "mm"}

    def __init__(self, settings: Settings, d: int, m: int, generator: Any = None, *, sparse: bool):
        super().__init__(settings, d, m, sparse=sparse)
        self.generator: Any = generator if generator is not None else np.random.default_rng(0)
        self.before: Any = None  # the state of the generator at the beginning of a call

    def _normal(self, rows: int) -> Floats:
        return np.asarray(self.generator.standard_normal((rows, self.core.m)))

    def learn_few(self, x: Floats, y: Floats, margins: Floats, progress: Floats) -> bool:
        """Learn from a few dense rows; return False, without a change, if they need a closer look."""
        before = self.generator.bit_generator.state
        learned = super().learn_few(x, y, margins, progress)
        if not learned:
            self.generator.bit_generator.state = before
        return learned

    def begin(self) -> None:
        """Begin a call that `rollback` can revert."""
        super().begin()
        self.before = self.generator.bit_generator.state

    def rollback(self) -> None:
        """Revert everything since `begin`."""
        super().rollback()
        self.generator.bit_generator.state = self.before

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        bt = self.arrays["bt"] + other["bt"]  # the projection of all rows, since each row has its own random numbers
        return {"v": w, "bt": bt, "c": np.zeros(bt.shape[1]), "gram": bt.T @ bt}

    def fraction(self, k: int, i: int) -> Self:
        """Return part i of k, with the same weights and an independent random sequence."""
        part = super().fraction(k, i)
        if i > 0:  # jump far ahead in the sequence, so that the parts do not overlap
            part.generator = np.random.Generator(part.generator.bit_generator.jumped(i))
        return part

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        arrays = self.arrays
        return {"bt": arrays["bt"] / k, "c": arrays["c"] * k, "gram": arrays["gram"] / k**2}

    def __deepcopy__(self, memo: Any) -> Self:
        new = super().__deepcopy__(memo)
        new.generator = copy.deepcopy(self.generator)
        return new

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        numbers, arrays = super().pack()
        return numbers | {"generator": json.dumps(self.generator.bit_generator.state)}, arrays

    def _unpack_more(self, parts: Parts) -> None:
        self.generator.bit_generator.state = json.loads(parts.text("generator"))


class OjaState(RowState):
    """The state of Oja-SON (Luo et al. 2016), with Y in place of B. V = F Y is orthonormal."""

    method, basis = _core.Method.oja, "yt"
    shapes = {"v": "d", "yt": "dm", "c": "m", "energy": "m", "f": "mm"}
    sums = ("energy",)

    def __init__(self, settings: Settings, d: int, m: int, generator: Any = None, *, sparse: bool):
        super().__init__(settings, d, m, sparse=sparse)
        if generator is not None:
            self.arrays["yt"][:] = np.linalg.qr(generator.standard_normal((d, m)))[0]

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        models = (self.arrays, other)
        directions = [each["f"] @ each["yt"].T for each in models]
        rows = np.vstack([np.sqrt(each["energy"])[:, None] * v for each, v in zip(models, directions, strict=True)])
        # The iteration needs m directions, even those without energy.
        little = 1e-12 * max(float(np.abs(rows).max()), 1e-150) * directions[0]
        _, s, v = np.linalg.svd(np.vstack([rows, little]), full_matrices=False)
        m = len(directions[0])
        energy = np.where(s[:m] > 1e-9 * s[0], np.square(s[:m]), 0.0)
        return {"v": w, "yt": v[:m].T, "c": np.zeros(m), "energy": energy, "f": np.eye(m)}
