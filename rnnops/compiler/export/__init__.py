"""Recorded plans as files that need no Python where they run: an object, a C header, weights."""
