"""ONNX files: `load` makes a net of one, `export` writes one. They need the package `onnx` (extra `onnx`)."""

from rnnops.errors import MissingPackageError as MissingPackageError, OnnxError as OnnxError

try:
    import onnx as _onnx  # noqa: F401
except ImportError as error:
    raise MissingPackageError("the package onnx is missing", hint="Install it: pip install onnx.") from error

from rnnops.onnx.export import export as export
from rnnops.onnx.load import OnnxModel as OnnxModel, load as load, load_model as load_model
