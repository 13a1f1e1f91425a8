"""The error that this package raises."""


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
