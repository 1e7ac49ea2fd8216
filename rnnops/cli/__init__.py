"""The `rnnops` command: it trains a character model, samples from it and draws its learning curve."""
