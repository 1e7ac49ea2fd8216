"""Reports of plans: text, memory, time."""
