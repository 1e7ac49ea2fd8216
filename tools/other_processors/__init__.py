"""Golden values, and a training step of every cell, run on processors that this machine is not, by emulation."""
