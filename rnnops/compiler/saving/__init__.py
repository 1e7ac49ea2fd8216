"""What is kept for the backward pass: policies, budgets, predicted times."""
