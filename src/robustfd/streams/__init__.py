"""Files, pipes, iterables and tables as streams of blocks of rows: `for X, y in open_stream("rows.svm")`."""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__)
