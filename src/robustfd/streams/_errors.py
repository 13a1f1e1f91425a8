"""The error that every stream raises."""


class StreamError(ValueError):
    """Rows that cannot be read. The message names the file, the line and the problem."""
