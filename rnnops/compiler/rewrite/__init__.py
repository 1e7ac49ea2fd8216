"""Rewrites of nets before and while a run is planned."""
