"""Order of gates in weights and biases, written once."""

GATES = "ifog"  # LSTM and its kin: input, forget, output, candidate
GRU_GATES = ("reset", "update", "output")
