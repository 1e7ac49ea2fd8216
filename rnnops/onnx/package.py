"""The door to the package `onnx`, and errors of reading and writing ONNX files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rnnops.errors import RnnopsError


class OnnxError(RnnopsError):
    """A file is not an ONNX model that can be read here, or a net cannot be written as one.

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


try:
    import onnx as onnx
    from onnx.defs import get_schema as get_schema, onnx_opset_version as onnx_opset_version
    from onnx.external_data_helper import load_external_data_for_tensor as load_external_data_for_tensor
    from onnx.shape_inference import infer_shapes as infer_shapes
except ImportError as error:
    raise MissingPackageError("the package onnx is missing", hint="Install it: pip install onnx.") from error

OLDEST_OPSET, NEWEST_OPSET = 7, 28  # the versions of the op set whose meaning is implemented here
