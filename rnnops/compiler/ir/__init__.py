"""Kernel IR: typed values between a step plan and the targets that render it."""
