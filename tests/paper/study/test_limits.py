from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ranktrial.methods import (
    AB,
    Balanced,
    Counterfactual,
    ExpectedRun,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    TooManyDisplaysError,
    probabilistic,
    team_draft,
)
from ranktrial.paper.study import StudyPlan, Task
from ranktrial.paper.study.files import read_rows
from ranktrial.paper.study.folder import StudyFolder, TaskResult
from ranktrial.paper.study.tables import write_tables
from ranktrial.rankings import Moments, Pair
from ranktrial.users import User, cascade, position_based, rank_decay

K = 3
ZETA = np.array([0.1, 0.0, 1.0, 0.4, 0.9, 0.2, 0.6])


def law(mean: float) -> ExpectedRun:
    return ExpectedRun.of_moments([1], Moments(mean, 1.0, ctr=1.0))


def limit_of(method: Method, pair: Pair, user: User, *, seed: int) -> Moments:
    """The limit of a method's estimate as a study finds it."""
    run = method.expected(pair, user, [1], seed=seed)
    assert run.standard_error is not None
    return Moments(float(run.estimate[0]), 0.0, float(run.ctr[0]), standard_error=run.standard_error)


@pytest.fixture
def pair() -> Pair:
    """Two queries of three and four documents, few enough to list every display."""
    a = np.array([3.0, 2, 1, 4, 3, 2, 1])
    b = np.array([1.0, 3, 2, 1, 4, 2, 3])
    return Pair.from_scores(a, b, np.array([0, 3, 7]), K).knowing(theta=rank_decay(K))


def users() -> Iterator[User]:
    yield position_based(ZETA, rank_decay(K))
    yield cascade(ZETA, K, theta=rank_decay(K))


@pytest.mark.parametrize("user", list(users()), ids=lambda user: user.name)
@pytest.mark.parametrize(
    "method", [AB(), AB(estimate="paper"), TeamDraft(), TeamDraft("sum"), Balanced(), Optimized()], ids=str
)
def test_limits_are_exact_where_displays_can_be_listed(method: Method, pair: Pair, user: User) -> None:
    limit, moments = limit_of(method, pair, user, seed=1), method.displays(pair).moments(user)
    assert limit.standard_error == 0
    assert limit.mean == pytest.approx(moments.mean, abs=1e-12)
    assert limit.ctr == pytest.approx(moments.ctr, abs=1e-12)


@pytest.mark.parametrize("user", list(users()), ids=lambda user: user.name)
def test_probabilistic_displays_are_drawn_with_a_true_standard_error(
    pair: Pair, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = Probabilistic().moments(pair, user)
    limit = limit_of(Probabilistic(), pair, user, seed=3)
    assert 0 < limit.standard_error < 1e-3
    assert abs(limit.mean - exact.mean) < 4.5 * limit.standard_error
    assert limit.ctr == pytest.approx(exact.ctr, abs=0.01)

    # Its spread over many seeds is what it says: 200 limits know a standard deviation to 5 %.
    monkeypatch.setattr(probabilistic, "DRAWS", 400)
    many = [limit_of(Probabilistic(), pair, user, seed=seed) for seed in range(200)]
    said = np.sqrt(np.mean([one.standard_error**2 for one in many]))
    assert np.std([one.mean for one in many]) == pytest.approx(said, rel=0.25)


def test_drawing_the_swapped_pair_too_takes_most_of_the_variance_out(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    queries, documents, draws = 40, 12, 100
    a, b, zeta = random.random((3, queries * documents))
    pair = Pair.from_scores(a, b, np.arange(0, queries * documents + 1, documents), K)
    user = position_based(zeta, rank_decay(K))
    monkeypatch.setattr(probabilistic, "DRAWS", draws * queries)
    alone = probabilistic._expected_signs(Probabilistic().sampled_displays(pair, 2 * draws, seed=3), user)[:, 0]
    error = np.sqrt(alone.reshape(queries, -1).var(axis=1, ddof=1).sum() / (2 * draws)) / queries
    assert limit_of(Probabilistic(), pair, user, seed=3).standard_error < error / 2


def test_what_can_be_neither_listed_nor_drawn_is_simulated(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    user = next(users())
    exact = TeamDraft().moments(pair, user)
    monkeypatch.setattr(team_draft, "MOST_COINS", 0)
    monkeypatch.setattr(team_draft, "SHORTCUT_COINS", 0)
    with pytest.raises(TooManyDisplaysError):
        TeamDraft().displays(pair)
    limit = limit_of(TeamDraft(), pair, user, seed=1)
    assert limit.standard_error == pytest.approx(np.sqrt(exact.variance / team_draft.MANY_IMPRESSIONS), rel=0.01)
    assert abs(limit.mean - exact.mean) < 4.5 * limit.standard_error


@pytest.mark.parametrize("logging", ["ab", "optimal"])
def test_counterfactual_limits_are_delta_only_for_the_users_they_are_told_of(logging: str, pair: Pair) -> None:
    follows, leaves = users()
    method = Counterfactual(logging=logging)
    assert limit_of(method, pair, follows, seed=1).mean == pytest.approx(pair.delta(follows), abs=1e-12)
    told = pair.knowing(theta=rank_decay(K, 0.3))
    assert abs(limit_of(method, told, follows, seed=1).mean - pair.delta(follows)) > 1e-3
    assert abs(limit_of(method, pair, leaves, seed=1).mean - pair.delta(leaves)) > 1e-4


def test_methods_that_learn_on_the_way_have_no_limit() -> None:
    assert all(
        method.traits.has_exact_limit for method in (AB(), TeamDraft(), Probabilistic(), Optimized(), Balanced())
    )
    assert Counterfactual(logging="optimal").traits.has_exact_limit
    assert not Counterfactual(logging="optimal", propensities="observed").traits.has_exact_limit
    assert not Counterfactual(logging="uniform").traits.has_exact_limit
    assert not LogOpt().traits.has_exact_limit


@pytest.mark.parametrize(
    ("mean", "delta", "wrong"),
    [(0.1, 0.2, False), (-0.1, 0.2, True), (0.0, 0.2, True), (0.1, -0.2, True), (0.1, 0, False)],
)
def test_a_limit_of_zero_prefers_neither_and_is_wrong(
    mean: float, delta: float, wrong: bool, tiny_plan: StudyPlan, tmp_path: Path
) -> None:
    study = StudyFolder(tmp_path)
    study.record(Task("first", 0, "AB()"), TaskResult(1 + delta, 1.0, law(mean), 1.0, 1.0, 0))
    write_tables(study, tiny_plan, tiny_plan.points, tmp_path)
    (row,) = read_rows('select "limit", wrong_sign from read_parquet($files)', [tmp_path / "limits.parquet"])
    assert row == {"limit": mean, "wrong_sign": wrong}
