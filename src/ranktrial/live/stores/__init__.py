"""Stores of a trial's log: what a store must do (``base``) and the one in a SQLite file (``sqlite``)."""
