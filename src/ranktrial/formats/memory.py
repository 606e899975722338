"""Memory that a process has."""

PYTHON = 300_000_000


def resident() -> int:
    """Bytes of a process with all that estimates import."""
    return PYTHON
