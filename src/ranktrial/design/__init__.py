"""Logging policies of least variance for comparing two rankers, and click budgets."""
