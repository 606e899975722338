from __future__ import annotations

import pytest

from clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
