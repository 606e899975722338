"""Logging policies of least variance: what should be shown."""
