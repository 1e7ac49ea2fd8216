"""Building blocks that generated code calls: `cpu` for processors, `cuda` for CUDA devices."""
