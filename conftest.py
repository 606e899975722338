"""All tests: linear algebra on one thread, and a folder of its own for each example in a docstring, which may write files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before NumPy is imported: threads of BLAS that wait for a core which another worker has take up to a hundred times as long.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@pytest.fixture(autouse=True)
def own_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = tmp_path_factory.mktemp("example")
        request.getfixturevalue("monkeypatch").chdir(folder)
