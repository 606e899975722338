from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli.study import study_app
from ranktrial.methods import ExpectedRun
from ranktrial.paper.study import StudyPlan, Task, run_study
from ranktrial.paper.study.figures.clicks import users_figure
from ranktrial.paper.study.figures.drawing import Names
from ranktrial.paper.study.figures.error_curves import logging_figure, methods_figure
from ranktrial.paper.study.figures.wrong_preferences import wrong_signs_figure
from ranktrial.paper.study.folder import StudyFolder, TaskResult
from ranktrial.paper.study.labels import labels, role, styles
from ranktrial.paper.study.plan import PRESETS, read_plan
from ranktrial.paper.study.results import DataResults, MethodLimits, Runs, thinned
from ranktrial.paper.study.summary import METRICS
from ranktrial.rankings import Moments

runner = CliRunner()


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open() as text:
        return list(csv.DictReader(text))


@pytest.fixture(scope="module")
def drawn(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("figures")
    result = runner.invoke(study_app, ["figures", str(reference), "--out", str(out), "--format", "svg"])
    assert result.exit_code == 0, result.output
    return out, result.stdout


def test_all_figures_are_written_and_named(drawn: tuple[Path, str]) -> None:
    out, said = drawn
    names = (
        "figure1_rankers",
        "figure2_methods",
        "figure3_logging",
        "figure4_errors",
        "figure6_users",
        "figure7_impressions",
        "figure8_ours",
    )
    expected = {f"{name}.{kind}" for name in names for kind in ("svg", "csv")}
    expected |= {"claims.csv", "claims.md", "impressions_needed.csv", "report.html"}
    assert {file.name for file in out.iterdir()} == expected
    assert all(name in said for name in expected)
    assert "The paper's claims" in said
    assert "not tested: no Team-draft in the study: 1a first, 1a second" in " ".join(said.split())


def test_curves_are_means_over_pairs(drawn: tuple[Path, str], reference: Path) -> None:
    rows = [row for row in rows_of(drawn[0] / "figure2_methods.csv") if row["data"] == "first"]
    for row in rows:
        (found,) = duckdb.execute(
            f"select avg({row['metric']}), stddev({row['metric']}) / sqrt(2) from read_parquet($file) "
            "where data = 'first' and method = $method and impressions = $n",
            {"file": str(reference / "results.parquet"), "method": row["spelling"], "n": int(row["impressions"])},
        ).fetchall()
        assert (float(row["mean"]), float(row["standard_error"])) == pytest.approx(found)
    label = "LogOpt network, bias estimated, schedule=(500,), steps=5, samples=20"
    assert {row["method"] for row in rows} == {"A/B, difference in means", label}
    assert {row["pairs"] for row in rows} == {"2"}


def test_labels_beside_lines_tell_the_last_option_too(drawn: tuple[Path, str]) -> None:
    picture = (drawn[0] / "figure2_methods.svg").read_text()
    assert "steps=5, samples=20</text>" in picture
    assert "…</text>" not in picture


def test_histograms_count_every_pair_and_ranker_once(drawn: tuple[Path, str]) -> None:
    errors = rows_of(drawn[0] / "figure4_errors.csv")
    for data in ("first", "second"):
        assert sum(
            float(row["pairs"]) for row in errors if (row["data"], row["method"]) == (data, "A/B, difference in means")
        ) == pytest.approx(2, abs=0.01)
    assert sum(int(row["rankers"]) for row in rows_of(drawn[0] / "figure1_rankers.csv")) == 8


def test_json_has_claims_and_ratios(reference: Path, tmp_path: Path) -> None:
    result = runner.invoke(study_app, ["figures", str(reference), "--out", str(tmp_path), "--format", "svg", "--json"])
    report = json.loads(result.stdout)
    assert {one["data"] for one in report["claims"]} == {"first", "second"}
    assert {one["baseline"] for one in report["ratios"]} == {
        "A/B, difference in means",
        "LogOpt network, bias estimated, schedule=(500,), steps=5, samples=20",
    }
    assert all(Path(file).exists() for file in report["files"])


def test_half_a_study_with_limits(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    plan = replace(tiny_plan, methods=(*tiny_plan.methods, "TeamDraft()"), limits=4)
    study.adopt(plan)
    result = runner.invoke(study_app, ["figures", str(tmp_path)])
    assert result.exit_code == 2
    assert "no results yet" in result.stderr
    for task in list(tiny_plan.tasks())[:4]:
        study.part(task).parent.mkdir(parents=True, exist_ok=True)
        study.part(task).write_bytes(StudyFolder(reference).part(task).read_bytes())
    for pair, limit in ((2, 0.05), (3, -0.01)):
        law = ExpectedRun.of_moments([1], Moments(limit, 1.0, ctr=1.0))
        study.record(Task("first", pair, "TeamDraft()", "limit"), TaskResult(1.0, 0.9, law, 1.0, 1.0, 0))
    result = runner.invoke(study_app, ["figures", str(tmp_path), "--format", "svg"])
    assert result.exit_code == 0, result.output
    limits = rows_of(tmp_path / "figures" / "figure5_limits.csv")
    assert [row["preference"] for row in limits] == ["right", "wrong"]
    scale = 0.1 * (0.05 - 0.01) / (0.05**2 + 0.01**2)
    assert [float(row["rescaled_error"]) for row in limits] == pytest.approx(
        [abs(0.1 - scale * 0.05), abs(0.1 + scale * 0.01)]
    )
    assert not (tmp_path / "figures" / "figure5_wrong_signs.csv").exists()  # two pairs make no curve
    assert "12 of 16 tasks have no result yet" in (tmp_path / "figures" / "report.html").read_text()


@pytest.mark.slow
def test_no_panel_has_more_than_eight_lines() -> None:
    taken = [f"LogOptNetwork(steps={1000 + i})" for i in range(12)]
    points, errors = np.array([100, 1000]), {metric: np.full((1, 2), 0.1) for metric in METRICS}
    one = np.ones(1)
    runs = {m: Runs(m, np.zeros(1, int), points, errors, one, one, one, one, one) for m in taken}
    data = [DataResults("set", runs, {})]
    first, second = methods_figure(data, Names.of(data))
    assert (first.name, second.name) == ("figure2_methods", "figure2_methods_2")
    lines = [{record["spelling"] for record in drawing.records} for drawing in (first, second)]
    assert [len(one) for one in lines] == [8, 5]
    assert lines[0] & lines[1] == {taken[0]}  # stands in both, to compare with
    assert lines[0] | lines[1] == set(taken)


def test_a_metric_that_no_method_has_gets_no_panel() -> None:
    method, one, points = 'Counterfactual(propensities="observed")', np.ones(2), np.array([100, 1000])
    errors = {metric: np.full((2, 2), 0.1) for metric in METRICS} | {"mean_squared_error": np.full((2, 2), np.nan)}
    data = [DataResults("set", {method: Runs(method, np.arange(2), points, errors, one, one, one, one, one)}, {})]
    (drawing,) = logging_figure(data, Names.of(data))
    assert {record["metric"] for record in drawing.records} == {"binary_error", "absolute_error"}


def test_rows_of_all_panels_are_the_same_methods_where_a_set_lacks_some() -> None:
    def runs(method: str) -> Runs:
        one, errors = np.ones(3), {metric: np.ones((3, 1)) for metric in METRICS}
        return Runs(method, np.arange(3), np.array([100]), errors, one, one, one, one, one)

    few, many = ['AB(estimate="paper")'], ['AB(estimate="paper")', "TeamDraft()"]
    results = [DataResults(name, {text: runs(text) for text in of}, {}) for name, of in (("x", few), ("y", many))]
    (drawing,) = users_figure(results, Names.of(results))
    spec = json.dumps(drawing.chart)
    assert spec.count('"domain": ["A/B, the paper\'s x", "Team-draft"]') >= 2


def test_where_interleaving_goes_wrong_is_a_curve() -> None:
    delta = np.geomspace(0.001, 0.1, 100)
    limit = np.where(np.arange(100) < 30, -delta, delta)
    limits = MethodLimits("TeamDraft()", np.arange(100), delta, limit, np.zeros(100), limit < 0)
    data = [DataResults("set", {}, {"TeamDraft()": limits})]
    (drawing,) = wrong_signs_figure(data, Names.of(data))
    shares = {record["delta"]: record["wrong"] for record in drawing.records}
    assert shares[min(shares)] == 1
    assert shares[max(shares)] == 0
    right = replace(limits, limit=delta, wrong_sign=np.zeros(100, bool))
    assert wrong_signs_figure([DataResults("set", {}, {"TeamDraft()": right})], Names.of(data)) == []


def test_expected_and_simulated_runs_stand_in_one_figure(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    plan = replace(tiny_plan, data=tiny_plan.data[:1], methods=tiny_plan.methods[:2], simulate=True)
    run_study(plan, tmp_path / "simulated")
    options = ["--out", str(tmp_path / "out"), "--format", "svg", "--simulated", str(tmp_path / "simulated")]
    result = runner.invoke(study_app, ["figures", str(reference), *options, "--form", "paper"])
    assert result.exit_code == 0, result.output
    rows = rows_of(tmp_path / "out" / "figure9_expectation.csv")
    assert {(row["data"], row["what"]) for row in rows} == {("first", "expected"), ("first", "simulated")}
    assert {row["method"] for row in rows} == {"A/B, difference in means", "Plackett-Luce on |lambda|"}
    assert (tmp_path / "out" / "figure2_methods.svg").exists()
    assert not (tmp_path / "out" / "figure8_ours.svg").exists()


def test_a_mistaken_format_or_folder_ends_with_one_sentence(reference: Path, tmp_path: Path) -> None:
    result = runner.invoke(study_app, ["figures", str(reference), "--out", str(tmp_path), "--format", "svg,gif"])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "format is 'gif', must be one of" in result.stderr
    result = runner.invoke(study_app, ["figures", str(tmp_path)])
    assert result.exit_code == 2
    assert "no study here" in " ".join(result.stderr.split())


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_labels_and_styles_of_their_own(preset: str) -> None:
    methods = read_plan(preset).methods
    assert None not in [role(method) for method in methods]
    assert len(set(labels(methods).values())) == len(methods)
    drawn = styles(methods)
    assert len({(style.colour, style.dash) for style in drawn.values()}) == len(methods)


def test_unknown_methods_keep_their_spelling() -> None:
    assert labels(["Coming(soon=True)", "AB()", 'AB(estimate="paper")']) == {
        "Coming(soon=True)": "Coming(soon=True)",
        "AB()": "A/B, difference in means",
        'AB(estimate="paper")': "A/B, the paper's x",
    }
    assert role('LogOpt(estimate="doubly-robust", bias="known", loss=None)') == "doubly-robust-known"
    assert labels(["LogOpt()", "LogOpt(loss=0.01)", "LogOpt(loss=None, keep=0, holdback=0)"]) == {
        "LogOpt()": "LogOpt with a budget of clicks, bias estimated",
        "LogOpt(loss=0.01)": "LogOpt with a budget of clicks, bias estimated, loss=0.01",
        "LogOpt(loss=None, keep=0, holdback=0)": "Closed form, rank-aware, bias estimated",
    }
    assert len({style.colour for style in styles(["Coming()", 'AB(estimate="paper")', "Other()"]).values()}) == 3


def test_thinned_checkpoints_keep_round_numbers_and_the_end() -> None:
    points = np.unique(np.round(np.geomspace(100, 3_000_000, 500)).astype(np.int64))
    kept = thinned(points)
    assert len(kept) < 90
    assert {kept[0], kept[-1]} == {100, 3_000_000}
    for wanted in (1_000, 10_000, 100_000, 1_000_000):
        assert np.min(np.abs(np.log(kept / wanted))) == np.min(np.abs(np.log(points / wanted)))


def test_methods_that_have_hardly_begun_are_not_drawn_beside_others() -> None:
    def runs(method: str, pairs: int) -> Runs:
        errors = {metric: np.ones((pairs, 1)) for metric in ("absolute_error",)}
        each = np.ones(pairs)
        return Runs(method, np.arange(pairs), np.array([100]), errors, each, each, each, each, each)

    results = DataResults("x", {"AB()": runs("AB()", 12), "TeamDraft()": runs("TeamDraft()", 2)}, {})
    assert list(results.begun(10).runs) == ["AB()"]
    assert list(results.begun(13).runs) == ["AB()", "TeamDraft()"]  # nothing to compare with
