"""Graphs of numbered nodes: orders and components."""
