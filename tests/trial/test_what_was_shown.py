"""Sites that do not show what was drawn are found out: by positions, by seen events, by clicks off the drawn page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis.guardrails.status import Guardrail
from ranktrial.trial import SeenOutcome, Shown, Trial
from simulated_trial import Ticks, World

WORLD = World.make(queries=40)
NAME = "the page shows what was drawn"
Site = Callable[[str, Shown, np.random.Generator], tuple[str, list[str]]]


def as_drawn(query: str, shown: Shown, random: np.random.Generator) -> tuple[str, list[str]]:
    return shown.id, shown.ranking


def wrong_in(share: float) -> Site:
    """A site that shows A's list to some whatever was drawn."""

    def site(query: str, shown: Shown, random: np.random.Generator) -> tuple[str, list[str]]:
        wrong = random.random() < share
        return shown.id, WORLD.a[query][: len(WORLD.theta)] if wrong else shown.ranking

    return site


def cached() -> Site:
    """A site that keeps the first answer of each query for everybody."""
    kept: dict[str, Shown] = {}

    def site(query: str, shown: Shown, random: np.random.Generator) -> tuple[str, list[str]]:
        first = kept.setdefault(query, shown)
        return first.id, first.ranking

    return site


def checked(
    path: Path,
    site: Site,
    impressions: int = 1500,
    *,
    positions: bool = False,
    seen: bool = False,
    size: int | None = 5,
) -> dict[str, Guardrail]:
    """The guardrails after some impressions on a site."""
    random, queries = np.random.default_rng(2), list(WORLD.zeta)
    options: dict[str, Any] = {
        "method": 'LogOpt(bias="known", relevance="constant", loss=None, keep=0, floor=0.5, holdback=0.1)',
        "theta": tuple(WORLD.theta.tolist()),
        "k": 5,
        "seed": 1,
    }
    with Trial.create(path / "t.db", background=False, timeout=60.0, clock=Ticks(), **options) as trial:
        for visitor in range(impressions):
            query = queries[random.integers(len(queries))]
            shown = trial.rank(query, WORLD.a[query], WORLD.b[query], unit=f"u{visitor}", size=size)
            id, page = site(query, shown, random)
            if seen:
                trial.seen(id, page[:5])
            for rank, (theta, document) in enumerate(zip(WORLD.theta, page, strict=False)):
                if random.random() < theta * WORLD.zeta[query][document]:
                    trial.click(id, document, position=rank + 1 if positions else None, wait=False)
        return {one.name: one for one in trial.report().guardrails}


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.2, 0.02])
def test_a_site_that_shows_a_instead_fails(tmp_path: Path, share: float, positions: bool) -> None:
    told = checked(tmp_path, wrong_in(share), positions=positions)[NAME]
    assert told.status == "fail"
    assert "no later page was asked for" in told.text


def test_positions_tell_it_where_pages_have_no_end(tmp_path: Path) -> None:
    told = checked(tmp_path, wrong_in(0.2), positions=True, size=None)[NAME]
    assert told.status == "fail"
    assert "positions count from 1" in told.text


def test_pages_that_say_what_they_displayed_tell_it(tmp_path: Path) -> None:
    told = checked(tmp_path, wrong_in(0.02), seen=True, size=None)[NAME]
    assert told.status == "fail"
    assert "pages that were seen are not as drawn" in told.text


@pytest.mark.parametrize("known", [{"positions": True}, {"seen": True}, {}])
def test_a_site_that_shows_what_was_drawn_passes(tmp_path: Path, known: dict[str, bool]) -> None:
    told = checked(tmp_path, as_drawn, 500, **known)
    assert (told[NAME].status, told[NAME].value) == ("pass", 0)
    assert told["duplicate clicks"].status == "pass"


def test_it_is_unknown_where_nothing_tells(tmp_path: Path) -> None:
    """Every page shows the whole lists, and no event says where: a click off the top may have been on any of them."""
    told = checked(tmp_path, as_drawn, 300, size=None)[NAME]
    assert told.status == "unknown"
    assert "positions" in told.text


def test_an_id_that_many_visitors_share_fails(tmp_path: Path) -> None:
    told = checked(tmp_path, cached())["duplicate clicks"]
    assert told.status == "fail"
    assert told.value > 0.5
    assert "cached" in told.text


def test_clicks_on_later_pages_that_were_asked_for_are_in_order(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    query = "q0"
    with Trial.create(tmp_path / "t.db", k=5, seed=1, background=False, timeout=60.0, clock=Ticks()) as trial:
        for visitor in range(300):
            pages = [
                trial.rank(query, WORLD.a[query], WORLD.b[query], unit=f"u{visitor}", offset=offset, size=5)
                for offset in (0, *([5] if visitor % 4 == 0 else []))
            ]
            for page in pages:
                if random.random() < 0.5:
                    trial.click(page.id, page.ranking[0], wait=False)
        report = trial.report()
    told = {one.name: one for one in report.guardrails}[NAME]
    assert report.tallies["clicks off the drawn page"] > 20
    assert told.status == "pass"
    assert "75 later pages were asked for" in told.text
    assert "later pages shown" not in report.tallies


@pytest.fixture
def trial(tmp_path: Path) -> Any:
    with Trial.create(tmp_path / "t.db", k=3, seed=5, background=False, timeout=60.0, clock=Ticks()) as made:
        yield made


A, B = ["a", "b", "c", "d"], ["c", "e", "a"]


def test_what_a_page_displayed_is_compared_from_the_top(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    top = shown.ranking[:3]
    for page, outcome in (
        (top, SeenOutcome.AS_DRAWN),
        (top[:1], SeenOutcome.AS_DRAWN),  # no more was looked at
        ([*top, "an advertisement"], SeenOutcome.AS_DRAWN),  # below what counts
        (top[::-1], SeenOutcome.NOT_AS_DRAWN),
        ([top[0], "an advertisement", *top[1:]], SeenOutcome.NOT_AS_DRAWN),
        ([], SeenOutcome.NOT_AS_DRAWN),
    ):
        assert trial.seen(shown.id, page) == outcome
    assert trial.seen("nonsense", top) == SeenOutcome.NOT_OURS
    assert trial.report().tallies == {}  # an impression is counted once: one visitor cannot spoil a trial


def test_a_short_page_has_nothing_in_its_gap(trial: Trial) -> None:
    shown = trial.rank("q", ["a"], ["a"], unit="u", wait=True)
    assert trial.seen(shown.id, ["a", "b"]) == SeenOutcome.NOT_AS_DRAWN
    assert trial.report().tallies == {"pages seen otherwise than drawn": 1}


def test_pages_without_a_draw_are_not_compared(trial: Trial, tmp_path: Path) -> None:
    fallback = trial.rank("q", None, B, unit="u")  # type: ignore[arg-type]
    assert trial.seen(fallback.id, ["a"]) == SeenOutcome.FALLBACK
    with Trial.create(tmp_path / "else.db", k=3, seed=5, background=False, timeout=60.0) as elsewhere:
        shown = elsewhere.rank("q", A, B, unit="u", wait=True)
    assert trial.seen(shown.id, shown.ranking) == SeenOutcome.NOT_COMPARED
    shown = trial.rank("q", A, B, unit="v", wait=True)
    trial.fall_back(shown, A)
    trial.store.flush()
    assert trial.seen(shown.id, shown.ranking) == SeenOutcome.VOID


def test_a_position_counts_once_for_a_click(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    for _ in range(3):
        trial.click(shown.id, shown.ranking[1], position=7)
    assert trial.report().tallies == {"pages with a click at another rank than drawn": 1, "duplicate clicks": 2}
