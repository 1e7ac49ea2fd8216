"""All ops: ONNX names as schemas in the registry. `rnnops` itself has their functions by snake_case names."""
