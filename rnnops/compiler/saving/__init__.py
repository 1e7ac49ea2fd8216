"""The choice of residuals: policies, budgets, predicted times."""
