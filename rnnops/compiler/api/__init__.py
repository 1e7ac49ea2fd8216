"""`compile`, runs and pullbacks: what users call."""
