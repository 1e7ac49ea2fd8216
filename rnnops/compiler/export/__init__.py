"""Recorded plans as files that need no Python where they run: an object or C99 source, a C header, weights."""
