"""Plain Python, one thread: what other targets are compared with."""
