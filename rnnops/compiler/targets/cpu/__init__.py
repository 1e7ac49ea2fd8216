"""Processors: LLVM IR, and teams of threads that run it."""
