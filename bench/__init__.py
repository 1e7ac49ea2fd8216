"""rnnops beside PyTorch, JAX and ONNX Runtime: `python -m bench`.

Every number is measured in the same run on the same data with the same number of threads, and only after outputs and
gradients of all contenders agree. `cases.py` is the table of what is measured and what is wanted of it.
"""
