"""Plain C99 as a target of kernel IR: one thread, no dependencies but the C library."""
