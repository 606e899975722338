"""Covariates of a live trial: declared, given with a search, stored with its impression, and used by the report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live_server import A, B
from ranktrial.analysis.analyse import analyse
from ranktrial.config import TrialConfig
from ranktrial.store.base import ImpressionRow
from ranktrial.trial import Trial, VersionConflict
from store.kinds import Kind

OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0}
NAMES = ["clicks_last_month", "age"]


def test_a_search_keeps_the_covariates_it_was_given_first(kind: Kind) -> None:
    store, nan = kind.open(), float("nan")
    given: list[Any] = [{"clicks_last_month": 3, "age": 0.5}, {"age": 0}, {"age": "old"}, {}, None, "x", {"income": 1}]
    expected = [[3, 0.5], [nan, 0], *[[nan, nan]] * 5]
    with Trial.create(store, covariates=NAMES, **OPTIONS) as trial:
        for at, covariates in enumerate(given):
            shown = trial.rank("q", A, B, unit=f"u{at}", wait=True, covariates=covariates)
            assert shown.fallback is None
        again = trial.rank("q", A, B, unit="u0", wait=True, covariates={"age": 9})  # a retry
        assert again.fallback is None
        log = trial.log()
        assert log.covariate_names == tuple(NAMES)
        np.testing.assert_array_equal(log.covariates, expected)
        np.testing.assert_array_equal(log.take(np.array([1, 0])).covariates, [[nan, 0], [3, 0.5]])
        told = {
            what: n for what, n in trial.report().tallies.items() if what.startswith("searches without a covariate")
        }
        assert told == {
            "searches without a covariate: age is not a number": 1,
            "searches without a covariate: what is given is not declared": 2,
        }
        trial.rank("q", A, B, unit="later", wait=True, covariates={"clicks_last_month": 4})
        assert trial.log().covariates[-1, 0] == 4
    with Trial.open(store, background=False) as trial:
        np.testing.assert_array_equal(trial.log().covariates[:-1], expected)
    store.close()


@pytest.mark.slow
def test_the_report_is_of_adjusted_estimates(tmp_path: Path) -> None:
    rng, reports = np.random.default_rng(1), []
    eager, luck = rng.random(600) < 0.5, rng.random((600, 5))
    for covariates in (NAMES[:1], []):
        with Trial.create(
            tmp_path / f"{len(covariates)}.db", method='AB(estimate="adjusted")', covariates=covariates, **OPTIONS
        ) as trial:
            for at in range(600):
                known = {"clicks_last_month": 20.0 * eager[at]} if covariates else None
                shown = trial.rank("q", A, B, unit=f"u{at}", covariates=known)
                for rank, document in enumerate(shown.ranking[:5]):
                    if luck[at, rank] < (0.9 if eager[at] else 0.05):
                        trial.click(shown.id, document)
            trial.store.flush()
            reports.append(analyse(trial.log(), trial.config, trial.config.first_beliefs).estimate)
    assert reports[0].impressions == reports[1].impressions == 600
    assert reports[0].standard_error < 0.7 * reports[1].standard_error


def test_without_declared_covariates_nothing_is_stored(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        trial.rank("q", A, B, unit="v", wait=True, covariates={"age": 3})
        assert trial.log().covariate_names == ()
        assert [row.covariates for row in trial.store.rows(ImpressionRow, 1, 0)] == [None]
        assert trial.report().tallies == {"searches without a covariate: what is given is not declared": 1}


def test_other_covariates_need_a_new_version(tmp_path: Path) -> None:
    Trial.create(tmp_path / "t.db", covariates=["age"], **OPTIONS).close()
    with pytest.raises(VersionConflict):
        Trial.create(tmp_path / "t.db", covariates=NAMES, **OPTIONS)
    with Trial.create(tmp_path / "t.db", covariates=NAMES, new_version=True, **OPTIONS) as trial:
        assert trial.version == 2


@pytest.mark.parametrize("names", [["a", "a"], [""], [" a"], list("abcdef"), ["x" * 41]])
def test_names_are_checked(names: list[str]) -> None:
    with pytest.raises(ValueError, match="covariates: "):
        TrialConfig.model_validate({"covariates": names})
