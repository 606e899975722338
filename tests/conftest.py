from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# The first call of a kernel compiles it, so single examples have no deadline; derandomised, a run repeats exactly.
settings.register_profile("ranktrial", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("ranktrial")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache of data sets of its own, never the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RANKTRIAL_CACHE", str(folder))
    return folder
