"""Rankings and counts of a trial: retries, pages, edges, clicks, versions."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from clocks import Clock
from ranktrial.analysis import decide
from ranktrial.methods import AB, Beliefs, LogOpt
from ranktrial.store import SQLiteStore, StoreError
from ranktrial.store.base import Nothing
from ranktrial.store.stored import Phase
from ranktrial.tokens import Token, version_of
from ranktrial.trial import ClickOutcome, Shown, Trial

A = [f"a{i}" for i in range(6)]
QUIET: dict[str, Any] = {"background": False, "timeout": 60.0}
LEAST = LogOpt(relevance="constant", loss=None, keep=0, holdback=0.1)  # whose designs differ much from each other
B = ["a1", "a0", "b2", "b3", "a4"]


@pytest.fixture
def trial(tmp_path: Path, clock: Clock) -> Iterator[Trial]:
    with Trial.create(tmp_path / "t.db", name="t", k=3, seed=5, **QUIET, clock=clock) as made:
        yield made


def reopened(trial: Trial, clock: Clock) -> Trial:
    path = trial.store._file.path  # type: ignore[attr-defined]
    trial.close()
    return Trial.open(path, **QUIET, clock=clock)


# --- showing --------------------------------------------------------------------------------------------------------------


def test_shows_every_document_once_and_stores_it(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    assert sorted(shown.ranking) == sorted({*A, *B})
    assert shown.fallback is None
    assert set(shown.ranking[:3]) <= {*A[:3], *B[:3]}
    log = trial.log()
    assert len(log) == 1
    assert log.left_out == {}


def test_a_retry_repeats_it_also_after_a_restart_and_a_new_design(trial: Trial, clock: Clock) -> None:
    shown = [trial.rank("q", A, B, unit=f"u{i}", wait=True) for i in range(20)]
    assert [trial.rank("q", A, B, unit=f"u{i}").ranking for i in range(20)] == [s.ranking for s in shown]
    assert len({tuple(s.ranking) for s in shown}) > 1
    trial.store.biases.add(
        trial.state.version.id, 9, Beliefs(np.array([1.0, 0.9, 0.8]), fitted=True, note="flatter"), 1
    )
    with reopened(trial, clock) as later:
        clock.now += 20
        again = [later.rank("q", A, B, unit=f"u{i}", wait=True) for i in range(20)]
        assert later.state.policy.bias.note == "flatter"
        assert [(s.ranking, s.id) for s in again] == [(s.ranking, s.id) for s in shown]
        assert len(later.log()) == 20


def test_other_lists_are_another_impression(trial: Trial) -> None:
    one, two = trial.rank("q", A, B, unit="u"), trial.rank("q", A[1:], B, unit="u")
    assert one.id != two.id
    trial.store.flush()
    assert len(trial.log()) == 2


def test_without_a_unit_every_call_is_a_draw_of_its_own(trial: Trial) -> None:
    assert len({trial.rank("q", A, B).id for _ in range(10)}) == 10


def test_pages_continue_one_draw(trial: Trial) -> None:
    whole = trial.rank("q", A, B, unit="u").ranking
    pages = [trial.rank("q", A, B, unit="u", offset=offset, size=3) for offset in (0, 3, 6, 9)]
    assert [d for page in pages for d in page.ranking] == whole
    assert len({page.id for page in pages}) == 1
    assert trial.rank("q", A, B, unit="u", offset=2, size=4).ranking == whole[2:6]


@pytest.mark.parametrize("method", ["LogOpt()", "AB()"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], ["x", "y"]),
        (["x", "y"], []),
        (["x"], ["y", "z", "w", "v"]),
        (["x", "y"], ["y", "x"]),
        (["x", "y", "z", "w"], ["x", "y", "z", "w"]),
        (["p", "q", "r"], ["s", "t", "u"]),
        (["x", "x", "y", "x"], ["y", "y", "x"]),
    ],
)
def test_lists_of_every_kind_have_an_outcome(tmp_path: Path, method: str, a: list[str], b: list[str]) -> None:
    with Trial.create(tmp_path / "t.db", method=method, k=3, seed=1, **QUIET) as trial:
        for i in range(60):
            shown, rest = (trial.rank("q", a, b, unit=f"u{i}", offset=offset) for offset in (0, 3))
            assert shown.fallback is None
            assert sorted({*shown.ranking, *rest.ranking}) == sorted({*a, *b})
            assert shown.ranking[3:] == (rest.ranking if len(shown.ranking) > 3 else [])
            for document in shown.ranking[:3]:
                trial.click(shown.id, document, wait=False)
        report = trial.report()
        assert report.impressions == 60
        assert any(np.isfinite(one.difference) for one in report.estimates)
        trial.update()


@pytest.mark.parametrize(("a", "seen"), [([], {"", "b0 b1"}), (["a0"], {"a0", "b0 b1"})])
def test_in_an_ab_test_nobody_sees_the_other_list_in_the_place_of_a_short_one(
    tmp_path: Path, a: list[str], seen: set[str]
) -> None:
    with Trial.create(tmp_path / "t.db", method="AB()", k=3, seed=1, **QUIET) as trial:
        shown = [trial.rank("q", a, ["b0", "b1"], unit=f"u{i}") for i in range(40)]
    assert {" ".join(one.ranking) for one in shown} == seen


def test_two_empty_lists_show_nothing_and_are_no_impression(trial: Trial) -> None:
    shown = trial.rank("q", [], [], unit="u", wait=True)
    assert (shown.ranking, shown.fallback) == ([], None)
    assert len(trial.log()) == 0


def test_identical_rankers_differ_by_exactly_nothing(trial: Trial) -> None:
    for i in range(50):
        shown = trial.rank("q", A, A, unit=f"u{i}")
        assert shown.ranking == A
        trial.click(shown.id, A[i % 3], wait=False)
    found = [one.difference for one in trial.report().estimates if not np.isnan(one.difference)]
    assert found
    assert not any(found)


def test_no_estimate_is_shown_before_there_is_a_click(trial: Trial) -> None:
    """An estimate that has nothing but predictions to rest on is none of this trial."""
    for i in range(50):
        shown = trial.rank("q", A, A[::-1], unit=f"u{i}")
    trial.store.flush()
    log = trial.log()
    for rows in (trial.report().estimates, decide(log).rows):
        assert all(np.isnan(one.difference) for one in rows)
        assert any(one.text == "Waiting for 100 visitors and 20 clicks, on lists that differ." for one in rows)
    assert {row["difference"] for row in decide(log).to_dict()["estimates"]} == {None}
    trial.click(shown.id, shown.ranking[0])
    assert any(np.isfinite(one.difference) for one in trial.report().estimates)


def test_numbers_are_ids_too(trial: Trial) -> None:
    shown = trial.rank("q", [1, 2, 3], [3, "2", 4], unit="u")
    assert shown.fallback is None
    assert sorted(shown.ranking) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("query", "a", "b"),
    [
        (None, A, B),
        ("q", None, B),
        ("q", A, None),
        ("q", A, "a string"),
        ("q", A, [["nested"]]),
        ("q", A, [None]),
        ("q", A, [1.5]),
        ("q", A, ["\ud800"]),
        ("q", [*A, "\ud800"], B),
        ("q", A, 7),
        (b"bytes", A, B),
    ],
)
def test_bad_input_shows_a_and_is_left_out(trial: Trial, query: str, a: list[str], b: list[str]) -> None:
    shown = trial.rank(query, a, b, unit="u", wait=True)
    assert (shown.fallback or "").startswith("bad input: ")
    assert shown.ranking == (a or [])
    assert trial.click(shown.id, "a0").outcome == ClickOutcome.FALLBACK
    report = trial.report()
    assert report.impressions == 0
    assert report.tallies == {"clicks on fallbacks": 1, "fallback: bad input": 1}


def test_a_stopped_trial_shows_a_and_still_counts_clicks(trial: Trial) -> None:
    before = trial.rank("q", A, B, unit="u", wait=True)
    trial.stop()
    after = trial.rank("q", A, B, unit="other", offset=1, size=2)
    assert (after.ranking, after.fallback) == (A[1:3], "the trial is stopped, A is shown")
    assert trial.click(before.id, before.ranking[0]).outcome == ClickOutcome.COUNTED
    report = trial.report()
    assert (report.impressions, report.clicks, report.stopped) == (1, 1, True)


def test_other_processes_notice_a_stop(trial: Trial, clock: Clock) -> None:
    path = trial.store._file.path  # type: ignore[attr-defined]
    with Trial.open(path, **QUIET, clock=clock) as other:
        trial.stop()
        assert not other.stopped
        other.watcher.step()
        assert other.stopped


# --- clicks ---------------------------------------------------------------------------------------------------------------


def on_page(shown: Shown) -> str:
    return shown.ranking[1]


def test_a_click_counts_once_however_often_it_comes(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    for _ in range(3):
        assert trial.click(shown.id, on_page(shown)).outcome == ClickOutcome.COUNTED
    report = trial.report()
    assert report.clicks == 1
    assert report.tallies == {"duplicate clicks": 2}


def test_a_click_may_come_before_its_impression(trial: Trial, clock: Clock, tmp_path: Path) -> None:
    with Trial.create(tmp_path / "copy.db", name="t", k=3, seed=5, **QUIET, clock=clock) as copy:
        shown = trial.rank("q", A, B, unit="u")
        assert copy.click(shown.id, on_page(shown)).outcome == ClickOutcome.WAITING
        early = copy.report()
        assert (early.impressions, early.clicks) == (0, 0)
        assert early.tallies == {"clicks without impression": 1, "impressions that are not stored, with clicks": 1}
        assert copy.rank("q", A, B, unit="u").id == shown.id  # the same secret, so the same draw
        late = copy.report()
        assert (late.impressions, late.clicks, late.tallies) == (1, 1, {})


def test_clicks_elsewhere_do_not_count(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    assert trial.click(shown.id, shown.ranking[3]).outcome == ClickOutcome.LATER_PAGE
    assert trial.click(shown.id, shown.ranking[-1]).outcome == ClickOutcome.LATER_PAGE
    assert trial.click(shown.id, "never heard of").outcome == ClickOutcome.NOT_SHOWN
    assert trial.click(shown.id, "x" * 5000).outcome == ClickOutcome.NOT_SHOWN
    report = trial.report()
    assert report.clicks == 0
    assert report.tallies == {"clicks off the drawn page": 2, "clicks on what was not shown": 2}
    assert {g.name: g.status for g in report.guardrails}["clicks"] == "warn"


def test_forged_ids_are_refused_and_counted(trial: Trial) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    forged = Token(1, 1_700_000_000, b"0123456789").sign(b"a prediction")
    for id in (forged, "", "nonsense", shown.id[:-1] + ("A" if shown.id[-1] != "A" else "B")):
        clicked = trial.click(id, on_page(shown))
        assert clicked.outcome == ClickOutcome.NOT_OURS
        assert clicked.outcome.refused
    report = trial.report()
    assert (report.clicks, report.tallies) == (0, {"clicks with an id that is not ours": 4})


def test_late_clicks_do_not_count_unless_one_came_in_time(trial: Trial, clock: Clock) -> None:
    first, second = (trial.rank("q", A, B, unit=unit, wait=True) for unit in "uv")
    clock.now += trial.config.click_window + 2
    assert trial.click(first.id, on_page(first)).outcome == ClickOutcome.LATE
    assert trial.click(second.id, on_page(second)).outcome == ClickOutcome.LATE
    assert trial.click(second.id, on_page(second), time=clock.now - 100).outcome == ClickOutcome.COUNTED
    report = trial.report()
    assert (report.clicks, report.tallies) == (1, {"late clicks": 1})


def test_times_may_be_numbers_of_numpy(trial: Trial, clock: Clock) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    assert trial.click(shown.id, on_page(shown), time=np.float64(clock.now)).outcome == ClickOutcome.COUNTED
    assert trial.report().clicks == 1


def test_the_fallback_id_is_no_way_in(trial: Trial) -> None:
    shown = trial.rank("q", A, None, unit="u")  # type: ignore[arg-type]
    assert shown._impression is None
    assert trial.click(shown.id, A[0]).outcome == ClickOutcome.FALLBACK
    assert trial.report().clicks == 0


# --- versions -------------------------------------------------------------------------------------------------------------


def test_versions_are_never_pooled(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Trial.create(path, name="t", k=3, **QUIET) as one:
        first = one.rank("q", A, B, unit="u", wait=True)
        one.click(first.id, first.ranking[0])
    with Trial.create(path, name="t", k=3, **QUIET) as same:
        assert same.version == 1
        assert same.rank("q", A, B, unit="u").id == first.id
    with Trial.create(path, name="t", k=2, new_version=True, **QUIET) as two:
        assert two.version == 2
        shown = two.rank("q", A, B, unit="u", wait=True)
        assert shown.id != first.id
        assert two.click(first.id, first.ranking[1]).outcome == ClickOutcome.COUNTED  # of the first version
        report = two.report()
        assert (report.version, report.impressions, report.clicks) == (2, 1, 0)
        assert [(part.version, part.impressions, part.clicks) for part in report.parts] == [(1, 1, 2), (2, 1, 0)]
    with Trial.open(path, version=1, **QUIET) as old:
        assert old.config.k == 3
        assert old.report().clicks == 2


def test_several_trials_share_a_store(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Trial.create(path, name="one", **QUIET) as one, Trial.create(path, name="two", **QUIET) as two:
        shown = one.rank("q", A, B, unit="u", wait=True)
        assert two.click(shown.id, A[0]).outcome == ClickOutcome.NOT_OURS
        assert (one.report().impressions, two.report().impressions) == (1, 0)
    with pytest.raises(StoreError, match="holds 2 trials"):
        Trial.open(path)
    with pytest.raises(StoreError, match="no trial 'three'"):
        Trial.open(path, "three")
    with pytest.raises(StoreError, match="does not exist"):
        Trial.open(tmp_path / "nothing.db")


def test_methods_are_written_as_everywhere(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", name="x", method=LogOpt(), **QUIET) as trial:
        assert trial.config.method == "LogOpt()"
    with Trial.create(tmp_path / "t.db", name="y", method=AB(split=0.2), **QUIET) as trial:
        assert trial.config.comparison == AB(split=0.2)
    for method in ("TeamDraft()", "LogOptNetwork()", "nonsense"):
        with pytest.raises(ValueError, match="method"):
            Trial.create(tmp_path / "t.db", name="z", method=method)


@pytest.mark.parametrize(
    ("option", "value"),
    [("k", 0), ("method", "LogOpt(floor=2)"), ("theta", (1.0, 0.5)), ("theta", (0.5, 0.5, 0.5)), ("level", 0.2),
     ("method", "LogOpt(schedule=(10, 5))"), ("floor", 0.5), ("smallest", 0), ("unit", "household"), ("colour", "red")],
)  # fmt: skip
def test_a_configuration_is_checked_before_anything_is_made(tmp_path: Path, option: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError), match=option):
        Trial.create(tmp_path / "t.db", **{"k": 3, option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["methode", "patience", "version"])
def test_an_unknown_option_is_refused_before_anything_is_written(tmp_path: Path, option: str) -> None:
    with pytest.raises(TypeError, match=f"{option} is not an option.*cache_size.*click_window.*method.*timeout"):
        Trial.create(tmp_path / "t.db", **{"k": 3, option: "AB()"})  # type: ignore[arg-type]
    assert not (tmp_path / "t.db").exists()
    with contextlib.closing(SQLiteStore(tmp_path / "own.db")) as store:
        with pytest.raises(TypeError, match=option):
            Trial.create(store, **{"k": 3, option: "AB()"})  # type: ignore[arg-type]
        assert store.trials.names() == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout", "x"), ("timeout", None), ("timeout", -1), ("timeout", float("nan")), ("timeout", float("inf")),
     ("cache_size", "x"), ("cache_size", -1), ("cache_size", 1.5), ("clock", "now"), ("name", 5)],
)  # fmt: skip
def test_options_of_the_trial_are_checked_before_anything_is_written(
    tmp_path: Path, option: str, value: object
) -> None:
    with pytest.raises((ValueError, TypeError), match=f"{option} is {value!r}, must be"):
        Trial.create(tmp_path / "t.db", **{"k": 3, option: value})  # type: ignore[arg-type]
    assert not (tmp_path / "t.db").exists()
    if option != "name":
        Trial.create(tmp_path / "t.db", k=3, **QUIET).close()
        with pytest.raises((ValueError, TypeError), match=f"{option} is {value!r}, must be"):
            Trial.open(tmp_path / "t.db", **{option: value})  # type: ignore[arg-type]


def test_a_store_given_to_several_trials_stays_open(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "t.db")
    with Trial.create(store, name="one", **QUIET) as one, Trial.create(store, name="two", **QUIET) as two:
        shown = one.rank("q", A, B, unit="u")
        version = version_of(shown.id)
        assert version is not None
        assert store.trials.of_version(version) == "one"
        assert two.report().impressions == 0
    assert store.trials.names() == ["one", "two"]
    assert len(Trial.open(store, "one", **QUIET).log()) == 1
    store.close()


def test_slow_answers_are_remembered_by_the_store(trial: Trial, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 6_000_000, 0, 60_000_000, 0, 1])
    with monkeypatch.context() as patch:
        patch.setattr("ranktrial.trial.showing.time.perf_counter_ns", ticks.__next__)
        for unit in ("slow", "very slow", "quick"):
            trial.rank("q", A, B, unit=unit)
    report = reopened(trial, clock).report()
    told = {g.name: g for g in report.guardrails}["latency"]
    assert told.value == 2 / 3
    assert (report.trial, report.tallies) == ("t", {})


@pytest.mark.parametrize("bad", ["smallest", "click_window", "eta"])
def test_numbers_of_the_configuration_are_finite(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ValueError, match=bad):
        Trial.create(tmp_path / "t.db", **{**QUIET, bad: float("inf")})
    assert not (tmp_path / "t.db").exists()


def test_strange_pages_of_a_fallback_still_have_a_list(trial: Trial) -> None:
    for offset, size in (("0", None), (None, None), (0, "all"), (-3, -1), (0, 10.0), (0.0, None)):
        shown = trial.rank("q", A, B, unit="u", offset=offset, size=size)  # type: ignore[arg-type]
        assert ((shown.fallback or "").partition(":")[0], shown.ranking) == ("bad input", A)
    assert trial.report().impressions == 0


def test_without_a_unit_every_call_is_one_impression_also_without_looking(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Trial.create(path, k=3, seed=5, **QUIET) as trial:
        trial.rank("q", A, B, unit="u", wait=True)
        trial.showing.impressions._recent.clear()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        first = trial.store.put(Nothing())
        while first.stage is not Phase.RUNNING:  # it waits for the lock, and all that come now go into the next commit
            assert not first.done()
            threading.Event().wait(0.001)
        shown = [trial.rank("q", A, B, unit, look=False) for unit in ("u", *[None] * 20)]
        other.execute("ROLLBACK")
        other.close()
        trial.store.flush()
        assert [one.stored.again for one in shown] == [True, *[False] * 20]
        assert trial.report().impressions == 21


def test_designs_let_go_of_long_lists(trial: Trial) -> None:
    long = [f"doc {i}" for i in range(1000)]
    trial.rank("q", long, long[::-1], unit="u", wait=True)
    (design,) = trial.showing._designs.values()
    assert not isinstance(design.below, tuple)
    assert len(design.rest) == 1000 - 6


def test_without_looking_the_store_tells_what_was_shown_before(tmp_path: Path) -> None:
    """Two processes, the second with another design: nothing is shown in two ways."""
    with Trial.create(tmp_path / "t.db", method=LEAST, k=3, seed=5, **QUIET) as first:
        shown = [first.rank("q", A, B, unit=f"u{i}", wait=True, look=False) for i in range(30)]
        assert not any(one.stored.again for one in shown)
        first.store.biases.add(1, 1, Beliefs(np.array([1.0, 0.9, 0.1]), fitted=True), 1)
        with Trial.open(tmp_path / "t.db", **QUIET) as second:
            drawn = [second.rank("q", A, B, unit=f"u{i}", look=False) for i in range(30)]
            second.store.flush()
            assert all(one.stored.again for one in drawn)
            assert [one.ranking for one in drawn] != [one.ranking for one in shown]
            for options in cast("list[dict[str, Any]]", [{}, {"look": False, "wait": True}]):
                again = [second.rank("q", A, B, unit=f"u{i}", **options).ranking for i in range(30)]
                assert again == [one.ranking for one in shown]
                second.showing.impressions._recent.clear()
            report = second.report()
            assert (report.impressions, report.tallies) == (30, {})
