"""Registry of data sets: addresses, checksums, sizes and labels, and the error of this package."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
TICK = "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/binary"
MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")

SIGNS: Mapping[int, float] = MappingProxyType({-1: -1.0, 1: 1.0})


class DatasetError(OSError, ValueError):
    """Raised if a data set is unknown, missing, cannot be downloaded, or has the wrong content.

    It is both an `OSError` and a `ValueError`, so code that handles either for unreadable files also handles it.

    See Also
    --------
    load : Load a data set.

    Examples
    --------
    >>> from robustfd import datasets
    >>> try:
    ...     datasets.info("a8a")
    ... except datasets.DatasetError as error:
    ...     print(str(error)[:27])
    There is no data set 'a8a'.
    """


@dataclass(frozen=True, slots=True)
class File:
    """A published file. Name, size in bytes and sha256 are those of the uncompressed content.

    Each address points to the plain file, to a copy that ends in .xz, .bz2 or .gz, or to a zip archive that contains a
    file of this name. A file without an address has to be made by hand. A sha256 or size of None means unknown.

    See Also
    --------
    Split : Rows stored in one or two files.
    """

    name: str
    addresses: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """Rows published in one file, or in one file for the rows and one for the labels.

    `n_nonzeros` counts the stored entries of a sparse file, including explicit zeros. None means unknown or dense. For
    data sets without checksums, it is the number that papers report.

    See Also
    --------
    Dataset : All splits of a data set.
    """

    n_rows: int
    files: tuple[File, ...] = ()
    n_nonzeros: int | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """Description of a data set.

    `format` is "libsvm", "idx" (a header and bytes), "table" (lines of numbers) or "scikit-learn" (no files). `labels`
    maps published labels to those that `load` returns. None keeps the published integers.

    See Also
    --------
    info : Return the description of a data set by name.
    """

    name: str
    n_features: int
    format: str
    splits: Mapping[str, Split]
    labels: Mapping[int, float] | None
    home: str
    in_paper: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the X that `load(name)` returns."""
        return self.splits["train"].n_rows, self.n_features


def _libsvm(name: str, d: int, splits: dict[str, Split], **more: Any) -> Dataset:
    return Dataset(name, d, "libsvm", MappingProxyType(splits), **{"labels": SIGNS, "home": LIBSVM, **more})


def _mnist(part: str, images: tuple[int, str], labels: tuple[int, str]) -> tuple[File, ...]:
    names = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    return tuple(
        File(name, tuple(f"{mirror}/{name}.gz" for mirror in MNIST), size, sha256)
        for name, (size, sha256) in zip(names, (images, labels))
    )


_ALL = (
    _libsvm("a9a", 123, {
        "train": Split(32_561, (File("a9a", (f"{LIBSVM}/binary/a9a",), 2_329_875,
            "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),), 451_592),
        "test": Split(16_281, (File("a9a.t", (f"{LIBSVM}/binary/a9a.t",), 1_164_628,
            "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),), 225_731),
    }, in_paper=True),
    _libsvm("gisette", 5_000, {
        "train": Split(6_000, (File("gisette_scale", (f"{LIBSVM}/binary/gisette_scale.bz2",)),), 29_729_997),
    }, in_paper=True),
    Dataset("sido0", 4_932, "table", MappingProxyType({
        "train": Split(12_678, tuple(
            File(name, ("https://www.causality.inf.ethz.ch/data/sido0_text.zip",))
            for name in ("sido0_train.data", "sido0_train.targets"))),
    }), SIGNS, "https://www.causality.inf.ethz.ch/data/SIDO.html", in_paper=True),
    _libsvm("farm-ads", 54_877, {
        "train": Split(4_143, (File("farm-ads-vect", (
            "https://archive.ics.uci.edu/static/public/218/farm+ads.zip",
            "https://archive.ics.uci.edu/ml/machine-learning-databases/00218/farm-ads-vect"), 5_558_859,
            "cee9de7aef56080a983cfddc22f2fae4dc9fea0804b3d033281c0b4288a4bb11"),), 817_141),
    }, home="https://archive.ics.uci.edu/dataset/218/farm+ads", in_paper=True),
    _libsvm("rcv1", 47_236, {
        "train": Split(20_242, (File("rcv1_train.binary", (f"{LIBSVM}/binary/rcv1_train.binary.bz2",)),), 1_498_952),
    }, in_paper=True),
    _libsvm("rcv1-subsets", 47_236, {
        "train": Split(23_765, (File("rcv1-subsets", (), 26_212_959,
            "bcf742b9eefa903e0e3acd7bf60b2de4bd2d9674f8d404f45550a98247469cb7"),), 1_784_672),
    }, home=f"{LIBSVM}/multilabel.html"),  # docs/datasets.md says how it is made
    _libsvm("real-sim", 20_958, {
        "train": Split(72_309, (File("real-sim", (f"{LIBSVM}/binary/real-sim.bz2",)),), 3_709_083),
    }, in_paper=True),
    # LIBSVM's own copy writes the same numbers differently; the checksums are those of the copy under these names.
    _libsvm("ijcnn1", 22, {
        "train": Split(49_990, (File("ijcnn1.trn", (f"{TICK}/ijcnn1/ijcnn1.trn.bz2",), 7_844_877,
            "7fe291672c3fefe6a7e3c51529becd23f0e985ba05ffb8d53c9c648c1e91cc19"),), 649_870),
        "test": Split(91_701, (File("ijcnn1.tst", (
            f"{TICK}/ijcnn1/ijcnn1.tst.bz2", f"{LIBSVM}/binary/ijcnn1.t.bz2"), 14_213_968,
            "e7b0bbd518641980dc322746c6bc59d019d3153934e6258e48f9d8cfae2c4bb8"),), 1_192_113),
    }),
    _libsvm("w8a", 300, {
        "train": Split(49_749, (File("w8a", (f"{LIBSVM}/binary/w8a",), 3_478_238,
            "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2"),), 579_586),
        "test": Split(14_951, (File("w8a.t", (f"{LIBSVM}/binary/w8a.t",), 1_045_870,
            "618929ecb01bebb841daec4cae4aa07b97832d29b08652452775598929547fde"),), 174_276),
    }),
    _libsvm("mushrooms", 112, {
        "train": Split(8_124, (File("mushrooms", (f"{LIBSVM}/binary/mushrooms",), 879_712,
            "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538"),), 170_604),
    }, labels=MappingProxyType({1: -1.0, 2: 1.0})),  # poisonous, edible
    _libsvm("news20", 62_061, {
        "train": Split(15_935, (File("news20", (f"{LIBSVM}/multiclass/news20.bz2",), 9_003_251,
            "1d6eb77c42e1c78e86f36af834268de933da3607f38e3703aef15f7a9f11e506"),), 1_272_569),
    }, labels=None),
    Dataset("mnist", 784, "idx", MappingProxyType({
        "train": Split(60_000, _mnist("train",
            (47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            (60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"))),
        "test": Split(10_000, _mnist("t10k",
            (7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            (10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"))),
    }), None, "http://yann.lecun.com/exdb/mnist/"),
    Dataset("digits", 64, "scikit-learn", MappingProxyType({"train": Split(1_797)}), None,
        "https://scikit-learn.org/stable/datasets/toy_dataset.html"),
    Dataset("breast-cancer", 30, "scikit-learn", MappingProxyType({"train": Split(569)}),
        MappingProxyType({0: -1.0, 1: 1.0}),  # malignant, benign
        "https://scikit-learn.org/stable/datasets/toy_dataset.html"),
)  # fmt: skip

REGISTRY: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}
