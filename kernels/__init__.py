"""Building blocks that generated code calls: `cpu` and `cuda` kernels live here once those devices exist."""
