"""From a step plan to kernel IR."""
