"""The one error of this room."""


class DatasetError(OSError, ValueError):
    """A data set that is not known, not there, not to be had, or not what it should be.

    It is an `OSError` and a `ValueError`, so whoever expects either of a file that cannot be read catches it.
    """
