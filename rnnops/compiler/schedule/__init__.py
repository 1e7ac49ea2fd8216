"""The schedule: batch axes, products, stages over time, loop nests, shares of threads."""
