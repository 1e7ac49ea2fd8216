"""Recurrences as compiled loops over time: from the ops of a step to a module of kernels."""
