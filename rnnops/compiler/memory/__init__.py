"""Choice of the tensors that are kept, and a place for each byte."""
