"""Backward passes layer by layer."""
