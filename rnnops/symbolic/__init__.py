"""Sizes as polynomials of T, N and other unknowns, and templates that are filled in with numbers."""
