"""CUDA devices: kernels for loops over steps, by numba.cuda."""
