"""The example notebooks run from top to bottom, in a process of Jupyter's own, and are saved with their outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook: Any) -> list[list[str]]:
    """Kinds of the outputs of each cell."""
    return [sorted(kind for one in cell.outputs for kind in one.get("data", ["text"])) for cell in code_cells(notebook)]


def test_there_are_notebooks_of_a_trial_a_log_and_a_plan() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["existing-log", "plan", "trial"]


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs_and_shows_what_was_saved(file: Path, tmp_path: Path) -> None:
    saved, again = (nbformat.read(file, as_version=4) for _ in range(2))
    NotebookClient(again, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(again) == shown(saved)
    assert sum("text/html" in kinds for kinds in shown(again)) >= 2
    for old, new in zip(code_cells(saved), code_cells(again)):
        texts = [[one.get("text", "") for one in cell.outputs if one.output_type == "stream"] for cell in (old, new)]
        assert texts[0] == texts[1]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_was_saved_is_in_order_and_holds_no_path(file: Path) -> None:
    saved = nbformat.read(file, as_version=4)
    nbformat.validate(saved)
    assert [cell.execution_count for cell in code_cells(saved)] == list(range(1, len(code_cells(saved)) + 1))
    assert not any(
        one.output_type == "error" or one.get("name") == "stderr" for c in code_cells(saved) for one in c.outputs
    )
    assert str(Path.home()) not in file.read_text(encoding="utf-8")
