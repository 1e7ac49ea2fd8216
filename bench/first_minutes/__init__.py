"""The first minutes on a GPU: processes with time limits, which check, time and train whatever can be done there."""
