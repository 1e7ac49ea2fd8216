"""ONNX files: `load` makes a net of one, `export` writes one. They need the package `onnx` (extra `onnx`)."""

from rnnops.onnx.export import export as export
from rnnops.onnx.load import OnnxModel as OnnxModel, load as load, load_model as load_model
from rnnops.onnx.package import MissingPackageError as MissingPackageError, OnnxError as OnnxError
