from __future__ import annotations

from pathlib import Path

import pytest

from ranktrial.paper.study import DataPlan, StudyPlan, run_study


@pytest.fixture(scope="session")
def tiny_plan() -> StudyPlan:
    """Two sets, two pairs, methods of every sort: the law at once, mixtures, Plackett-Luce, learning on the way."""
    return StudyPlan(
        data=(DataPlan("first", "yahoo-like", queries=20), DataPlan("second", "yahoo-like", queries=15, seed=4)),
        methods=(
            "AB()",
            'Counterfactual(logging="lambda")',
            'LogOptNetwork(bias="estimated", schedule=(500,), steps=5, samples=20)',
        ),
        pairs=2,
        impressions=2_000,
        checkpoints=6,
        k=5,
    )


@pytest.fixture(scope="session")
def reference(tiny_plan: StudyPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny study, run in one go by one worker; look, do not touch."""
    folder = tmp_path_factory.mktemp("reference") / "study"
    done = run_study(tiny_plan, folder)
    assert (done.ran, done.failures) == (12, ())
    return folder
