"""Targets: each renders kernel IR and calls the result."""
