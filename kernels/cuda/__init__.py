"""Building blocks of CUDA kernels; `facade.py` alone knows numba-cuda and its simulator."""
