"""Ops as statements over memory, and the two intermediate forms: statements and kernel IR."""
