"""What should be shown: logging policies of least variance."""
