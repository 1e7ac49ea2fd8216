"""Errors of reading and writing ONNX files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rnnops.errors import RnnopsError


class OnnxError(RnnopsError):
    """A file is no ONNX model that can be read here, or a net cannot be written as one.

    Example:
        >>> try:
        ...     ro.onnx.load("nowhere.onnx")
        ... except ro.onnx.OnnxError as error:
        ...     print(str(error).split(":")[0])
        nowhere.onnx
    """


class MissingPackageError(OnnxError, ImportError):
    """The package `onnx`, which parses and writes the files, is not installed.

    It is raised by `import rnnops.onnx`, and is an ImportError, too.

    Example:
        >>> issubclass(ro.onnx.MissingPackageError, (ro.onnx.OnnxError, ImportError))
        True
    """


@contextmanager
def about(where: str) -> Iterator[None]:
    """Turn whatever goes wrong inside into an OnnxError that says where: a file, or a node of it."""
    try:
        yield
    except RnnopsError as error:
        details = {"net": error.net, "op": error.op, "blob": error.blob, "hint": error.hint}
        problem = f"{where}: {error.problem}"
        raise OnnxError(problem, wanted=error.wanted, came=error.came, **details) from error
    except Exception as error:  # what damaged files and rules on senseless attributes raise has no common base
        raise OnnxError(f"{where}: it makes no sense", came=f"{type(error).__name__}: {error}"[:200]) from error
