"""Answers from logs: position bias and predictions, rankers that did not take part, propensities, what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.cli import app
from ranktrial.formats import (
    DocumentCounts,
    LogFolder,
    estimate_items,
    examine,
    export,
    held_out,
    position_bias,
    predict,
    read_log,
    read_source,
)
from ranktrial.methods import LogOpt, Method, Probabilistic, TeamDraft
from ranktrial.rankings import Pair
from ranktrial.trec import Run, read_run
from ranktrial.trial import Trial
from realdata import real_data
from simulated_trial import Ticks, World

runner = CliRunner()

METHOD = 'LogOpt(relevance="constant", keep=0, floor=0.5, holdback=0.4)'


def run_of(lists: dict[str, list[str]], file: Path) -> Run:
    lines = [f"{q} Q0 {d} {r} {-r} {file.stem}" for q, ranked in lists.items() for r, d in enumerate(ranked, 1)]
    file.write_text("\n".join(lines) + "\n")
    return read_run(file)


# --- position bias -----------------------------------------------------------------------------------------------------

COUNTS = (
    "query,document,position,shows,clicks\nq,x,1,40,20\nq,x,2,40,10\nq,y,1,20,4\nq,y,2,60,6\nr,z,1,10,4\nr,z,2,10,2\n"
)


def test_theta_of_counts_and_what_it_predicts(tmp_path: Path) -> None:
    """Every document is clicked half as often at rank 2, so theta_2 is 1/2 exactly."""
    (tmp_path / "counts.csv").write_text(COUNTS)
    source = read_source(tmp_path / "counts.csv")
    bias = position_bias(source)
    assert bias.theta == pytest.approx([1, 0.5], abs=1e-9)
    documents = DocumentCounts.of(source)
    for rank, rate in ((1, 0.5), (2, 0.25)):
        found = predict(documents, bias, documents.rows("q", "x"), rank)
        assert found.rate == pytest.approx(rate)
        assert found.seen == pytest.approx(rate)
        assert found.interval.low < rate < found.interval.high
    with pytest.raises(ValueError, match="never showed document 'w' of query 'q'"):
        documents.rows("q", "w")
    with pytest.raises(ValueError, match="never showed query 's'"):
        documents.rows("s", "x")
    with pytest.raises(ValueError, match="rank is 3, must be from 1 to 2"):
        predict(documents, bias, [0], 3)


def test_a_document_that_was_never_clicked_may_still_be(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text(COUNTS + "q,w,2,30,0\n")
    source = read_source(tmp_path / "counts.csv")
    documents = DocumentCounts.of(source)
    found = predict(documents, position_bias(source), documents.rows("q", "w"), 1)
    assert found.rate == found.interval.low == 0
    assert 1 / 15 < found.interval.high < 1


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, LogFolder]:
    folder = tmp_path_factory.mktemp("trial")
    world = World.make(queries=20, k=4)
    with Trial.create(
        folder / "t.db",
        k=4,
        background=False,
        clock=Ticks(),
        seed=1,
        method=METHOD,
    ) as one:
        world.run(one, 4000, seed=1, users=1500)
        export(one.store, one.name, folder / "log")
    return world, LogFolder(folder / "log")


def test_theta_of_a_trial_is_that_of_its_log(trial: tuple[World, LogFolder]) -> None:
    bias = position_bias(read_source(trial[1].path))
    expected = fit_position_bias(read_log(trial[1].path)).bias
    np.testing.assert_allclose(bias.theta, expected.theta, rtol=1e-9)
    np.testing.assert_allclose(bias.standard_error, expected.standard_error, rtol=1e-8)


def test_pages_without_designs_give_theta_with_errors_over_units(
    trial: tuple[World, LogFolder], tmp_path: Path
) -> None:
    """The same pages as a flat table: shows are what happened, units the same, so theta is that of ``Conditional()``."""
    source = read_source(trial[1].path)
    file = tmp_path / "flat.parquet"
    source.connection.execute(f"""COPY (SELECT impression, query, unit, unnest(shown) AS document, unnest(clicked) AS clicked,
        unnest(range(1, len(shown) + 1)) AS position FROM impressions ORDER BY time) TO '{file}' (FORMAT parquet)""")
    pages = read_source(file)
    assert pages.kind == "pages"
    bias = position_bias(pages)
    assert bias.degrees_of_freedom == 19
    assert np.all(np.abs(bias.theta - trial[0].theta)[1:] < 5 * bias.standard_error[1:])


def test_theta_predicts_queries_it_was_not_fitted_to(trial: tuple[World, LogFolder]) -> None:
    jumps = held_out(DocumentCounts.of(read_source(trial[1].path)), halves=4)
    assert [(jump.origin, jump.target) for jump in jumps] == [(1, 2), (1, 3), (3, 1)]
    for jump in jumps:
        assert abs(jump.predicted - jump.actual) < abs(jump.naive - jump.actual) / 2


# --- rankers that did not take part ----------------------------------------------------------------------------------------


def test_the_same_rankers_again_and_the_other_way_round(trial: tuple[World, LogFolder], tmp_path: Path) -> None:
    world, folder = trial
    a, b = (run_of(lists, tmp_path / f"{name}.run") for name, lists in (("a", world.a), ("b", world.b)))
    own, again, swapped = (
        estimate(read_log(folder.path, rankers=rankers), theta=world.theta, estimator="constant")
        for rankers in (None, (a, b), (b, a))
    )
    assert again.delta == pytest.approx(own.delta, rel=1e-12)
    assert again.standard_error == pytest.approx(own.standard_error, rel=1e-12)
    assert swapped.delta == pytest.approx(-own.delta, rel=1e-9)


def test_a_ranker_that_did_not_take_part(trial: tuple[World, LogFolder], tmp_path: Path) -> None:
    """The best order of A's own results against A's: within 4 standard errors of what it is worth, which is exact here."""
    world, folder = trial
    best = {q: sorted(ranked[:4], key=lambda d: -world.zeta[q][d]) for q, ranked in world.a.items()}
    first = {q: ranked[:4] for q, ranked in world.a.items()}
    runs = run_of(best, tmp_path / "best.run"), run_of(first, tmp_path / "a.run")
    log = read_log(folder.path, rankers=runs)
    assert not log.plain  # A's list and B's were drawn, not these
    found = estimate(log, theta="estimated")
    served = log.query[log.design]
    worth = np.array([
        sum(t * (world.zeta[q][x] - world.zeta[q][y]) for t, x, y in zip(world.theta, best[q], first[q]))
        for q in map(str, log.queries)
    ])  # fmt: skip
    assert abs(found.delta - worth[served].mean()) < 4 * found.standard_error
    assert found.delta > 4 * found.standard_error


def test_a_ranker_that_shows_what_could_not_be_seen_is_refused(trial: tuple[World, LogFolder], tmp_path: Path) -> None:
    world, folder = trial
    strange = run_of({q: ["new", *ranked] for q, ranked in world.a.items()}, tmp_path / "strange.run")
    log = read_log(folder.path, rankers=(strange, run_of(world.a, tmp_path / "a.run")))
    with pytest.raises(
        ValueError, match="document new is at rank 1 in A's list and none in B's, but could never be seen"
    ):
        estimate(log, theta=world.theta)


def test_a_run_of_other_queries_is_refused(trial: tuple[World, LogFolder], tmp_path: Path) -> None:
    """It would be valued as if it showed nothing."""
    world, folder = trial
    a, b = run_of(world.a, tmp_path / "a.run"), run_of({"another": ["x"]}, tmp_path / "b.run")
    with pytest.raises(
        ValueError, match=r"run B has no query of the log: queries of a run must be named as in the log, such as"
    ):
        read_log(folder.path, rankers=(a, b))
    (tmp_path / "items.csv").write_text("query,item_id,position,click,propensity_score\nq,x,1,0,0.5\n")
    with pytest.raises(ValueError, match=r"run A has no query of the log"):
        estimate_items(read_source(tmp_path / "items.csv"), b, run_of({"q": ["x"]}, tmp_path / "q.run"))


# --- results with propensities ----------------------------------------------------------------------------------------------

ITEMS = "item_id,position,click,propensity_score\n" + "".join(
    f"{item},{rank},{int(at < clicked)},0.5\n"
    for item, rank, clicked in (("x", 1, 2), ("y", 1, 1), ("x", 2, 1), ("y", 2, 1))
    for at in range(4)
)


def test_items_are_valued_by_their_propensities(tmp_path: Path) -> None:
    """Click rates 1/2 and 1/4 at rank 1, 1/4 and 1/4 at rank 2: x, y earns 1/4 more than y, x."""
    (tmp_path / "items.csv").write_text(ITEMS)
    a, b = (
        run_of({"all": ranked}, tmp_path / f"{name}.run") for name, ranked in (("a", ["x", "y"]), ("b", ["y", "x"]))
    )
    found, places = estimate_items(read_source(tmp_path / "items.csv"), a, b)
    assert found.delta == pytest.approx(0.25)
    assert (places.differ, places.never) == (4, 0)
    # Half of x and half of y at either rank: (2 + 1) / 8 of the clicks at rank 1 and (1 + 1) / 8 at rank 2, over 1/2.
    assert places.both.mean == pytest.approx(0.375 + 0.25)
    half = [[1, 1, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 0, 0, 0]]
    spread = np.concatenate([(np.array(row) - np.mean(row)) / 8 for row in half])
    assert places.both.standard_error == pytest.approx(np.sqrt(16 / 15 * (spread @ spread)))
    # A page has one row of two at each rank: clicks on all rows that A's list has there count 2 each, as do those of B's.
    assert places.worth == pytest.approx((2.0, 2.0))
    x = [[2, 2, 0, 0, -2, 0, 0, 0], [-2, 0, 0, 0, 2, 0, 0, 0]]  # of the rows at ranks 1 and 2
    away = np.concatenate([(np.array(row) - np.mean(row)) / 8 for row in x])
    assert found.standard_error == pytest.approx(np.sqrt(16 / 15 * (away @ away)))
    assert estimate_items(read_source(tmp_path / "items.csv"), b, a)[0].delta == pytest.approx(-0.25)


def test_errors_of_position_bias_are_over_units_of_items(tmp_path: Path) -> None:
    """Open Bandit has one query and many rounds: the error is that of two binomial rates, compared within each item."""
    rng = np.random.default_rng(3)
    rows = [(int(rng.integers(2)), int(rng.integers(2))) for _ in range(8000)]
    text = "".join(f"{item},{rank + 1},{int(rng.random() < [0.4, 0.2][rank])},0.25\n" for item, rank in rows)
    (tmp_path / "items.csv").write_text("item_id,position,click,propensity_score\n" + text)
    bias = position_bias(read_source(tmp_path / "items.csv"))
    assert abs(bias.theta[1] - 0.5) < 4 * bias.standard_error[1]
    # delta method: theta_2 (1/4000 of (1 - p) / p at each rank), and 20 groups say an error to within 16 %
    expected = 0.5 * np.sqrt((0.6 / 0.4 + 0.8 / 0.2) / 4000)
    assert bias.standard_error[1] == pytest.approx(expected, rel=0.6)


def test_places_that_were_never_drawn_are_named(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text(ITEMS)
    a, b = (
        run_of({"all": ranked}, tmp_path / f"{name}.run") for name, ranked in (("a", ["x", "w"]), ("b", ["y", "x"]))
    )
    _, places = estimate_items(read_source(tmp_path / "items.csv"), a, b)
    assert (places.never, places.example) == (1, "A shows w at rank 2")
    told = runner.invoke(
        app, ["estimate", str(tmp_path / "items.csv"), "--a", str(tmp_path / "a.run"), "--b", str(tmp_path / "b.run")]
    )
    assert "1 of 4 places on which the rankers differ were never drawn" in " ".join(told.stdout.split())


def test_an_answer_from_items_has_a_lift_and_says_what_it_does_not_allow_for(tmp_path: Path) -> None:
    """Clicked are x and y with 0.6 and 0.3 at rank 1, 0.3 and 0.2 at rank 2: x, y earns 0.8 and y, x 0.6, a lift of -1/4."""
    rng = np.random.default_rng(7)
    rates = {("x", 1): 0.6, ("y", 1): 0.3, ("x", 2): 0.3, ("y", 2): 0.2}
    lines = ["impression,item_id,position,click,propensity_score"]
    for page in range(6000):
        for (item, rank), chance in (one for one in rates.items() if one[0][0] == "xy"[(page + one[0][1]) % 2]):
            lines.append(f"{page},{item},{rank},{int(rng.random() < chance)},0.5")
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    for name, ranked in (("a", ["x", "y"]), ("b", ["y", "x"])):
        run_of({"all": ranked}, tmp_path / f"{name}.run")
    command = ["estimate", str(tmp_path / "items.csv"), "--a", str(tmp_path / "a.run"), "--b", str(tmp_path / "b.run")]
    told = json.loads(runner.invoke(app, [*command, "--json"]).stdout)
    lift = told["decision"]["lift"]
    assert lift["interval"][0] < -0.25 < lift["interval"][1]
    assert lift["share"] == pytest.approx(-0.25, abs=0.1)
    # Each page shows one list, whose two clicks count 2 each: half of the pages are A's.
    away = min(map(abs, told["estimates"][0]["interval"]))
    assert told["decision"]["overturned_by"] == pytest.approx(away / 2)
    assert "allowance" in told["note"]


# --- what is wrong ------------------------------------------------------------------------------------------------------


def findings(path: Path, **options: Any) -> dict[str, str]:
    return {one.name: one.status for one in examine(path, **options).findings}


def test_what_is_there_says_when(tmp_path: Path) -> None:
    """Days tell how times were read."""
    record = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"], "clicked": ["x"]}
    times: dict[str, list[Any]] = {"without times": [None, None], "on 2026-01-01": [1767225600, 1767225600000]}
    times["on 2 days from 2026-01-01 to 2026-01-03"] = ["2026-01-01", "2026-01-02T23:00:00-04:00"]
    for when, told in times.items():
        lines = [json.dumps(record | ({} if time is None else {"time": time})) for time in told]
        (tmp_path / "log.jsonl").write_text("\n".join(lines))
        assert f"2 searches of 2 visitors {when}: 4 shows" in examine(tmp_path / "log.jsonl").findings[1].text


def test_a_sound_trial(trial: tuple[World, LogFolder]) -> None:
    found = findings(trial[1].path)
    assert found == dict.fromkeys(
        ("rows", "contents", "position bias", "two rankers", "A/B traffic", "a third ranker"), "pass"
    )


def test_wrong_rows_are_told_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text(COUNTS + "q,w,2,-1,0\nq,w,x,1,0\n")
    examined = examine(tmp_path / "counts.csv")
    assert not examined.sound
    assert examined.findings[0].text.endswith("must be a number, not negative (and 1 more lines are wrong)")
    assert f"{tmp_path}/counts.csv:8:" in examined.findings[0].text
    assert examined.rates == ((1, 70.0, 28.0), (2, 110.0, 18.0))


def test_a_ranker_that_never_moves_tells_no_position_bias(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("query,document,position,shows,clicks\nq,x,1,40,20\nq,y,2,40,10\n")
    told = {one.name: one for one in examine(tmp_path / "counts.csv").findings}
    assert told["position bias"].status == "fail"
    assert "no clicked document connects rank 2 with rank 1" in told["position bias"].text
    assert told["a third ranker"].status == told["two rankers"].status == "warn"


def test_a_lost_arm_is_noticed(tmp_path: Path) -> None:
    """Half of B's impressions without a click were not logged."""
    rng, lines = np.random.default_rng(1), []
    for at in range(4000):
        arm = "ab"[rng.integers(2)]
        shown, clicked = (["x", "y"] if arm == "a" else ["y", "x"]), rng.random() < 0.3
        if arm == "a" or clicked or rng.random() < 0.5:
            record = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": shown, "clicked": shown[: int(clicked)]}
            lines.append(json.dumps(record | {"unit": at}))
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    assert findings(tmp_path / "log.jsonl")["A/B traffic"] == "fail"


def test_pages_that_all_have_a_click_and_a_unit_too_large(tmp_path: Path) -> None:
    rows = "".join(f"q,{d},{r},{int(r == 1)},{page},robot\n" for page in range(1200) for r, d in ((1, "x"), (2, "y")))
    (tmp_path / "flat.csv").write_text("query,document,position,clicked,search_id,user\n" + rows)
    found = findings(tmp_path / "flat.csv")
    assert (found["pages without a click"], found["visitors"]) == ("warn", "warn")


# --- commands --------------------------------------------------------------------------------------------------------------


def test_import_check_bias_and_estimate(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text(COUNTS)
    folder = tmp_path / "log"
    told = runner.invoke(app, ["import", str(tmp_path / "counts.csv"), "--to", str(folder)])
    assert told.exit_code == 0, told.output
    assert "read 6 rows as counts into" in told.stdout
    for log in (tmp_path / "counts.csv", folder):
        assert runner.invoke(app, ["check", str(log)]).exit_code == 0
        result = runner.invoke(app, ["bias", str(log), "--query", "q", "--document", "x", "--rank", "2", "--json"])
        found = json.loads(result.stdout)
        assert found["theta"] == pytest.approx([1, 0.5], abs=1e-9)
        assert found["prediction"]["rate"] == pytest.approx(0.25)
        refused = runner.invoke(app, ["estimate", str(log)])
        assert refused.exit_code == 2
        assert "it does not say what two rankers would have shown" in " ".join(refused.stderr.split())
    chart = tmp_path / "theta.svg"
    assert runner.invoke(app, ["bias", str(folder), "--chart", str(chart)]).exit_code == 0
    assert chart.read_text().startswith("<svg")


def test_a_wrong_file_is_refused_by_every_command(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("query,document,position,clicked\nq,x,0,1\n")
    for command in (["import", str(file), "--to", str(tmp_path / "log")], ["bias", str(file)], ["estimate", str(file)]):
        result = runner.invoke(app, command)
        assert result.exit_code == 2
        assert f"{file}:2: position is 0, must count from 1" in result.stderr.replace("\n", "")
    assert runner.invoke(app, ["check", str(file)]).exit_code == 1
    assert not (tmp_path / "log").exists()


def test_third_rankers_by_command(trial: tuple[World, LogFolder], tmp_path: Path) -> None:
    world, folder = trial
    for name, lists in (("a", world.a), ("b", world.b)):
        run_of(lists, tmp_path / f"{name}.run")
    theta = ",".join(map(str, world.theta))
    runs = ["--a", str(tmp_path / "b.run"), "--b", str(tmp_path / "a.run"), "--theta", theta]
    found = json.loads(runner.invoke(app, ["estimate", str(folder.path), *runs, "--json"]).stdout)
    log = read_log(folder.path)
    top = {one["name"]: one for one in found["estimates"]}["position-based"]
    assert top["difference"] == pytest.approx(
        estimate(log, theta=world.theta).delta, rel=0.05
    )  # predictions see other list ranks


def test_mailru_clicks() -> None:
    """A real log of 20 M shows: sound as far as it goes, theta known to a few percent, and predictions that hold."""
    file = real_data("mailru_clicks") / "mailru_clicks.tsv.gz"
    examined = examine(file)
    assert examined.sound
    assert "20,439,280 shows and 3,679,429 clicks" in examined.findings[1].text
    told = json.loads(runner.invoke(app, ["bias", str(file), "--test", "--json"]).stdout)
    assert told["theta"][1:3] == pytest.approx([0.645, 0.414], abs=0.001)
    for jump in told["test"]:
        assert abs(jump["predicted"] - jump["actual"]) < 0.1 * abs(jump["naive"] - jump["actual"])
    assert runner.invoke(app, ["estimate", str(file)]).exit_code == 2


@pytest.mark.parametrize("method", [TeamDraft(), Probabilistic(tau=2)], ids=str)
def test_interleaved_traffic_says_delta(method: Method, tmp_path: Path) -> None:
    """Appendix A's own case, in which interleaving prefers the wrong ranker: valued by placement the same pages do not."""
    theta, zeta = [1.0, 0.9, 0.8], {"A": 0.1, "B": 0.0, "C": 1.0}
    a, b = ["A", "B", "C"], ["B", "C", "A"]
    pair = Pair.from_lists([a], [b], k=3)
    mixture = method.displays(pair).mixture
    rng, lines = np.random.default_rng(5), []
    for row in rng.choice(len(mixture.weights), 8000, p=mixture.weights):
        shown = [pair.ids[d] for d in mixture.rankings[row]]
        clicked = [d for d, seen in zip(shown, theta) if rng.random() < seen * zeta[d]]
        lines.append(json.dumps({"query": "q", "a": a, "b": b, "shown": shown, "clicked": clicked}))
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    log = read_log(tmp_path / "pages.jsonl", method=method)
    np.testing.assert_allclose(log.placement_of(np.argsort(log.document)), mixture.placement(), atol=1e-12)
    found = estimate(log, theta=theta, cross_fit="past", refits=LogOpt(bias="known").traits.learns_at or None)
    assert abs(found.delta - -0.08) < 4 * found.standard_error < 0.08
    command = ["estimate", str(tmp_path / "pages.jsonl"), "--method", str(method), "--theta", "1,.9,.8", "--json"]
    told = json.loads(runner.invoke(app, command).stdout)
    by_name = {one["name"]: one for one in told["estimates"]}
    assert by_name["position-based"]["difference"] == pytest.approx(-found.delta)
