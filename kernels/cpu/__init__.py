"""Building blocks for x86 and ARM processors, called from code that numba compiles."""
