"""ONNX files: `load` makes a net of one, `export` writes one. They need the package `onnx` (extra `onnx`)."""

from rnnops.onnx.errors import MissingPackageError as MissingPackageError, OnnxError as OnnxError
from rnnops.onnx.export import export as export
from rnnops.onnx.load import OnnxModel as OnnxModel, load as load, load_model as load_model
