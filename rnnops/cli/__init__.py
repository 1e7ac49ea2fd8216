"""The `rnnops` command: it trains a character model, exports models as programs, and looks at ONNX files."""
