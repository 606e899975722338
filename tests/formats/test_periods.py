"""Periods: position bias of a ranker that learns from clicks is right within days, and a log says that it needs them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.formats import LogSource, SQLLog, examine, export, fit_bias, position_bias, read_source, save
from ranktrial.formats.bias import day_effect
from ranktrial.position_bias import Conditional, Counts
from ranktrial.trec.files import FormatError
from ranktrial.trial import Trial
from simulated_trial import Ticks, World

QUERIES, DOCUMENTS, K, DAYS, SEARCHES = 300, 12, 10, 20, 1200
THETA = 1 / np.arange(1, K + 1)
MONDAY = 20458 * 86400  # 2026-01-05, UTC
runner = CliRunner()


def write_log(file: Path, seed: int, *, learns: bool, days: int = DAYS, searches: int = SEARCHES) -> Path:
    """Searches of a position-based world, a row for each result. A ranker that learns sorts by clicks per show every day.

    Its scores are uncertain, so that documents stand at several ranks of one day.
    """
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.05, 0.5, (QUERIES, DOCUMENTS))
    shows, clicks = np.zeros((2, QUERIES, DOCUMENTS))
    scores = rng.uniform(0, 0.3, (QUERIES, DOCUMENTS))
    lines = ["search_id,time,ranker,query,document,position,clicked"]
    for day in range(days):
        if learns:
            scores = np.where(shows > 0, clicks / np.maximum(shows, 1), 0.1)
        query = rng.integers(QUERIES, size=searches)
        shown = np.argsort(-scores[query] - 0.1 * rng.normal(size=(searches, DOCUMENTS)), 1)[:, :K]
        clicked = rng.random(shown.shape) < THETA * relevance[query[:, None], shown]
        np.add.at(shows, (query[:, None], shown), 1)
        np.add.at(clicks, (query[:, None], shown), clicked)
        for search in range(searches):
            page = f"{day}-{search},{MONDAY + day * 86400 + search},v{day},q{query[search]}"
            results = zip(shown[search].tolist(), clicked[search].tolist())
            lines += [f"{page},d{document},{rank},{int(hit)}" for rank, (document, hit) in enumerate(results, 1)]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log") / "learning.csv", 1, learns=True)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("log") / "fixed.csv", 1, learns=False)


def away(log: Path, within: str | None) -> np.ndarray:
    """Errors of theta below rank 1, in standard errors."""
    bias = position_bias(read_source(log, within=within))
    return np.asarray((bias.theta - THETA)[1:] / bias.standard_error[1:])


@pytest.mark.slow
def test_theta_of_a_ranker_that_learns_is_right_within_days_only(learning: Path) -> None:
    assert away(learning, None).min() > 3
    for within in ("day", "ranker"):
        assert np.abs(away(learning, within)).max() < 4
    assert away(learning, "week").min() > 3  # it learns within weeks too


@pytest.mark.slow
def test_theta_of_a_ranker_that_does_not_learn_is_right_in_any_way(fixed: Path) -> None:
    for within in (None, "day", "week", "ranker"):
        assert np.abs(away(fixed, within)).max() < 4


def finding(log: Path) -> tuple[str, str]:
    (found,) = (one for one in examine(log).findings if one.name == "changes over time")
    return found.status, found.text


@pytest.mark.slow
def test_a_ranker_that_learns_is_noticed(learning: Path) -> None:
    status, text = finding(learning)
    assert status == "warn"
    assert text.startswith("this ranker seems to learn from clicks: theta at rank ")
    assert text.endswith("Compare within periods: ranktrial bias --within day")
    effect = day_effect(read_source(learning))
    assert effect is not None
    np.testing.assert_allclose(effect.pooled, position_bias(read_source(learning)).theta, rtol=1e-9)
    np.testing.assert_allclose(effect.within, position_bias(read_source(learning, within="day")).theta, rtol=1e-9)
    rank = int(np.argmax(np.abs(effect.pooled - effect.within)))
    assert f"rank {rank + 1}: {effect.pooled[rank]:.2f} pooled, {effect.within[rank]:.2f} within days" in text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_ranker_that_does_not_learn_is_not_blamed(seed: int, tmp_path: Path) -> None:
    """One log in a thousand is, by chance: a false alarm at four seeds has a probability of 0.4 %."""
    status, text = finding(write_log(tmp_path / "log.csv", seed, learns=False))
    assert status == "pass"
    assert text.startswith("this ranker does not seem to learn from clicks: theta at rank ")


@pytest.mark.slow
def test_a_short_log_is_enough_to_notice_and_a_shorter_one_says_that_it_is_not(tmp_path: Path) -> None:
    thin = write_log(tmp_path / "thin.csv", 1, learns=True, days=84, searches=60)
    assert finding(thin)[0] == "warn"
    pooled, week, day = (position_bias(read_source(thin, within=within)).theta for within in (None, "week", "day"))
    assert (week > pooled)[1:].mean() > 0.5  # weeks of a ranker that learns every day are no remedy
    assert np.abs(day - THETA).max() < 0.3 * np.abs(pooled - THETA).max()
    short = write_log(tmp_path / "short.csv", 1, learns=True, days=3, searches=60)
    assert finding(short)[0] == "note"
    assert "the log cannot tell whether the ranker learns from clicks" in finding(short)[1]


def test_nothing_is_said_of_changes_where_there_is_one_day(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", 1, learns=True, days=1, searches=60)
    assert "changes over time" not in {one.name for one in examine(log).findings}


# --- what a period is ------------------------------------------------------------------------------------------------------

# Relevance changes from Sunday to Monday, and the order with it: theta_2 is 0.5 on each day, and 0.65 over both.
CHANGED = {
    ("2026-01-04", "v1"): {("x", 1): (40, 8), ("x", 2): (40, 4)},
    ("2026-01-05", "v2"): {("x", 1): (40, 32), ("x", 2): (120, 48)},
}


def results(*, page: bool) -> str:
    columns = "query,document,position,clicked,time,model" + (",search_id" if page else "")
    lines = []
    for (day, model), cells in CHANGED.items():
        for (document, rank), (shows, clicks) in cells.items():
            for n in range(shows):
                search = f",{day}-{rank}-{n}" if page else ""
                lines.append(f"q,{document},{rank},{int(n < clicks)},{day} 23:59:59,{model}{search}")
    return "\n".join([columns, *lines])


def counted() -> str:
    lines = [
        f"q,{document},{rank},{shows},{clicks},{day},{model}"
        for (day, model), cells in CHANGED.items()
        for (document, rank), (shows, clicks) in cells.items()
    ]
    return "\n".join(["query,document,position,shows,clicks,time,model", *lines])


def drawn() -> str:
    header, *lines = results(page=False).splitlines()
    return "\n".join([f"{header},propensity", *(f"{line},0.5" for line in lines)])


LOGS = {"pages": results(page=True), "flat": results(page=False), "counts": counted(), "items": drawn()}


@pytest.mark.parametrize("text", LOGS.values(), ids=LOGS)
@pytest.mark.parametrize("within", ["day", "week", "model"])
def test_a_document_is_compared_within_its_period(text: str, within: str, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(text)
    pooled, split = read_source(log), read_source(log, within=within)
    assert position_bias(pooled).theta == pytest.approx([1, 0.65], rel=1e-9)
    assert (pooled.periods, split.periods) == (1, 2)
    assert position_bias(split).theta == pytest.approx([1, 0.5], rel=1e-9)


def test_a_folder_has_days_and_its_own_columns(tmp_path: Path) -> None:
    log, folder = tmp_path / "log.csv", tmp_path / "folder"
    log.write_text(results(page=True))
    save(read_source(log), folder)
    for within in ("day", "week"):
        assert position_bias(read_source(folder, within=within)).theta == pytest.approx([1, 0.5], rel=1e-9)
    with pytest.raises(
        FormatError, match=r"no column 'model' .*; columns: version, .*; or give the file that was imported"
    ):
        read_source(folder, within="model")


FLAT = "query,document,position,clicked"
WRONG = {
    "no times": (f"{FLAT}\nq,x,1,0\n", "day", None, "no times, which --within day needs: a column time"),
    "no such column": (f"{FLAT}\nq,x,1,0\n", "release", None, f"columns: {FLAT.replace(',', ', ')}; or --within day or week"),
    "no value": (f"{FLAT},model\nq,x,1,0,a\nq,x,2,0,\n", "model", 3, "model is missing, within which"),
    "two values": (f"{FLAT},search_id,model\nq,x,1,0,1,a\nq,y,2,0,1,b\n", "model", 3, "search_id 1 has two values of model"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_period_is_named(case: str, tmp_path: Path) -> None:
    text, within, line, message = WRONG[case]
    log = tmp_path / "log.csv"
    log.write_text(text)
    with pytest.raises(FormatError) as refusal:
        read_source(log, within=within)
    assert message in refusal.value.problem
    assert refusal.value.line == line


def test_a_folder_without_times_has_no_days(tmp_path: Path) -> None:
    for name, text in (("pages", results(page=True).replace("time", "when")), ("counts", counted())):
        (tmp_path / f"{name}.csv").write_text(text)
        save(read_source(tmp_path / f"{name}.csv"), tmp_path / name)
        with pytest.raises(FormatError, match="no times, which --within week needs: import a log that has them"):
            read_source(tmp_path / name, within="week")


def test_the_command(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(results(page=True))
    told = json.loads(runner.invoke(app, ["bias", str(log), "--within", "model", "--json"]).stdout)
    assert (told["within"], told["periods"]) == ("model", 2)
    assert told["theta"] == pytest.approx([1, 0.5])
    asked = ["bias", str(log), "--within", "day", "--query", "q", "--document", "x", "--rank", "1"]
    found = runner.invoke(app, asked)
    assert "compared within one day only, 2 in all" in found.stdout
    assert "from 92 clicks in 240 shows" in " ".join(found.stdout.split())
    pooled = json.loads(runner.invoke(app, ["bias", str(log), "--json"]).stdout)
    assert (pooled["within"], pooled["periods"]) == (None, 1)
    refused = runner.invoke(app, ["bias", str(log), "--within", "search_id"])
    assert refused.exit_code == 2
    assert "(within one search_id; longer periods compare more)" in " ".join(refused.stderr.split())
    assert "A ranker that learns from clicks" in " ".join(runner.invoke(app, ["bias", "--help"]).stdout.split())


# --- designs ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported log of a trial that redesigned once: each query has two designs of the same lists."""
    folder, world = tmp_path_factory.mktemp("trial"), World.make(queries=8)
    method = "LogOpt(holdback=0.5, schedule=(400,))"
    with Trial.create(folder / "trial.db", k=5, background=False, clock=Ticks(), method=method, seed=3) as live:
        world.run(live, 800, seed=1)
        live.update()
        world.run(live, 800, seed=2)
        export(live.store, live.name, folder / "log")
    return folder / "log"


def by_hand(source: LogSource, key: str) -> np.ndarray:
    """Theta of a log, from its rows: a row of counts for each document of each key."""
    cells: dict[tuple[str, str, str], np.ndarray] = defaultdict(lambda: np.zeros((2, source.k)))
    for query, name, shown, clicked in source.connection.execute(
        f"SELECT query, {key}, shown, clicked FROM impressions JOIN designs USING (version, design, query)"
    ).fetchall():
        for rank, (document, hit) in enumerate(zip(shown, clicked)):
            cells[query, str(name), document][:, rank] += (1, hit)
    tables = np.stack(list(cells.values()), axis=1)
    return Conditional().fit(Counts.from_dense(*tables)).theta


@pytest.mark.slow
def test_a_trial_counts_by_design(trial: Path) -> None:
    """The same query and lists under other beliefs are another design, and are not compared with it."""
    source = read_source(trial)
    designs, lists = source.connection.execute(
        "SELECT count(*), count(DISTINCT (query, a, b)) FROM designs"
    ).fetchall()[0]
    assert designs == 2 * lists
    with pytest.raises(FormatError, match=r"arm is missing in \d+ rows, within which documents are compared"):
        read_source(trial, within="arm")
    bias = fit_bias(SQLLog(source.connection))[0]
    assert bias.method == "Conditional()"
    np.testing.assert_allclose(bias.theta, by_hand(source, "design"), rtol=1e-8)
    assert np.abs(bias.theta - by_hand(source, "(a, b)"))[1:].min() > 1e-4


def test_a_log_of_two_rankers_is_compared_by_design_and_period(tmp_path: Path) -> None:
    rng, lines = np.random.default_rng(6), []
    for at in range(800):
        arm, release = "ab"[rng.integers(2)], at // 400
        shown = ["x", "y"] if arm == "a" else ["y", "x"]
        clicked = [d for d, seen in zip(shown, (1, 0.6)) if rng.random() < seen * (0.3 + 0.3 * release)]
        record = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "arm": arm, "shown": shown, "clicked": clicked}
        lines.append(json.dumps(record | {"release": release}))
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(lines))
    source = read_source(log, within="release")
    bias = position_bias(source)
    assert bias.method == "Conditional()"
    np.testing.assert_allclose(bias.theta, by_hand(source, "design || ' ' || period"), rtol=1e-8)
    assert abs(bias.theta[1] - position_bias(read_source(log)).theta[1]) > 1e-4
