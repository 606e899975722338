"""Estimators of Delta from a log: A/B traffic, the click model, trust bias; each with its error."""
