"""Compiled scans and how they are called: forward, backward, in parts, step by step."""
