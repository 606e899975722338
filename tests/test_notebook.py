"""Results in notebooks: sound HTML that says what the result says, without scripts, and with strangers' text escaped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as Tree

import numpy as np
import pytest

from ranktrial import AB, Log, LogOpt, Pair, TeamDraft, Trial, decide, estimate, fit_position_bias, notebook, plan
from ranktrial.users import position_based

PAIR = Pair.from_lists([["a", "b", "c"], ["p", "q"]], [["b", "c", "a"], ["q", "r"]], k=2).knowing(theta=[1.0, 0.6])
VISITORS = position_based([0.5, 0.3, 0.2, 0.6, 0.4, 0.1], [1.0, 0.6])
LOG = Log.simulated(PAIR, AB().policy(PAIR), VISITORS, 5_000, seed=1)
STRANGE = "<script>alert('x')</script> & \u202ered"


def tree(result: Any) -> Tree.Element:
    """HTML that a notebook gets of a result, which is well-formed and holds no script."""
    found = Tree.fromstring(result._repr_html_())
    assert {one.tag.rpartition("}")[2] for one in found.iter()} <= {
        "div", "p", "strong", "details", "summary", "table", "tr", "th", "td", "svg", "line", "circle", "text", "rect",
    }  # fmt: skip
    assert not any(name.startswith("on") for one in found.iter() for name in one.attrib)
    return found


def text(element: Tree.Element | None) -> str:
    assert element is not None
    return " ".join("".join(element.itertext()).split())


def summaries(found: Tree.Element) -> list[str]:
    return [text(one) for one in found.iter("summary")]


def test_an_estimate_is_of_b_against_a_and_decides_nothing() -> None:
    result = estimate(LOG)
    found = tree(result)
    low, high = result.confidence_interval()
    assert result.delta > 0
    assert text(found.find("p")) == f"B against A: {-result.delta:+.4f} clicks per search."
    assert f"95% interval {-high:+.4f} to {-low:+.4f}, by this estimator alone" in text(found)
    assert "A - B" not in text(found)
    assert summaries(found) == ["What it rests on"]
    assert tree(estimate(LOG.first(40), theta=[1.0, 0.6])) is not None


def test_the_decision_on_a_log_says_what_it_says_elsewhere() -> None:
    answer = decide(LOG)
    found = tree(answer)
    assert text(found.find("p")) == answer.text.headline == "B gets 44% fewer clicks than A."
    for part in (answer.text.details, answer.text.next, answer.text.trust, answer.unchecked):
        assert " ".join(part.split()) in text(found)
    assert summaries(found)[0] == "Estimates"
    assert f"{len(answer.checks)} checks" in summaries(found)[-1]
    assert str(answer.decision.interval)[:7] in text(found)


def test_a_report_has_its_verdict_its_interval_and_folded_checks(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=2) as trial:
        for visitor in range(30):
            shown = trial.rank(STRANGE, a=["1", "2"], b=["2", "3"], unit=f"user-{visitor}")
            trial.click(shown.id, shown.ranking[0])
        report = trial.report()
    found = tree(report)
    assert text(found.find("p")) == report.text.headline
    for line in report.lines:
        assert " ".join(line.split())[:60] in text(found)
    assert f"{len(report.guardrails)} checks" in summaries(found)[-1]
    assert all(one.attrib == {} for one in found.iter("details"))  # folded
    assert report.guardrails[0].text[:40] in text(found)


def test_a_plan_has_a_row_for_each_method() -> None:
    result = plan(PAIR, VISITORS, methods=[AB(), LogOpt()])
    found = tree(result)
    assert text(found.find("p")) == result.verdict[0]
    rows = [[text(cell) for cell in row] for row in found.iter("tr")]
    assert [row[0] for row in rows[1:]] == [row.method for row in result.rows]


def test_position_bias_has_a_bar_for_each_rank() -> None:
    bias = fit_position_bias(LOG).bias
    assert fit_position_bias(LOG)._repr_html_() == bias._repr_html_()
    found = tree(bias)
    widths = [float(one.attrib["width"]) for one in found.iter("{http://www.w3.org/2000/svg}rect")]
    np.testing.assert_allclose(widths, 160 * bias.theta, atol=0.06)


def test_logs_and_pairs_show_their_first_rows() -> None:
    found = tree(LOG)
    assert text(found.find("p")) == f"5,000 searches, {int(LOG.clicks.sum()):,} clicks, 2 queries, k = 2"
    assert len(list(found.iter("tr"))) == 1 + notebook.MOST_ROWS
    pair = tree(PAIR)
    assert [text(cell) for cell in list(pair.iter("tr"))[1]] == ["0", "a, b", "b, c"]


def test_text_of_strangers_is_escaped() -> None:
    search = {"query": STRANGE, "a": [STRANGE, "y"], "b": ["y"], "shown": ["y"], "clicked": ["y"]}
    log = Log.from_records([search], k=2)
    html = log._repr_html_()
    assert "<script" not in html
    assert "\u202e" not in html
    assert "<script>alert('x')</script> & red" in text(tree(log))


@pytest.mark.parametrize("value", [(np.nan, 0.0, 1.0), (0.0, -np.inf, np.inf)])
def test_an_interval_that_is_not_known_has_no_chart(value: tuple[float, float, float]) -> None:
    assert notebook.interval_chart(*value, "clicks") == ""


def test_the_chart_holds_zero_and_both_ends() -> None:
    found = Tree.fromstring(notebook.interval_chart(0.3, 0.2, 0.4, "clicks"))
    zero, line = (one.attrib for one in found.iter("{http://www.w3.org/2000/svg}line"))
    assert float(zero["x1"]) < float(line["x1"]) < float(line["x2"]) <= notebook.WIDTH - notebook.MARGIN


def test_a_trial_says_how_it_is_set_up_and_how_far_it_is(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", name=STRANGE, k=2, seed=1, timeout=60.0) as trial:
        for visitor in "xyz":
            trial.rank("q", a=["a", "b", "c"], b=["b", "c", "a"], unit=visitor)
        told = text(tree(trial))
        assert "Trial <script>" in told
        assert "running" in told
        assert "LogOpt()" in told
        assert "searches so far3" in told
        trial.stop(show="B")
        assert "everybody gets B's list" in text(tree(trial))


def test_charts_hold_the_numbers_of_the_result() -> None:
    def rows(result: Any) -> list[dict[str, Any]]:
        """Data of the chart that a notebook gets."""
        return [row for sheet in result.chart().to_dict()["datasets"].values() for row in sheet]

    found, bias = estimate(LOG), fit_position_bias(LOG)
    low, high = found.confidence_interval()
    assert {"what": "this estimator", "difference": -found.delta, "low": -high, "high": -low} in rows(found)
    assert [row["theta"] for row in rows(bias)] == bias.bias.theta.tolist() == [row["theta"] for row in rows(bias.bias)]
    planned = plan(PAIR, [0.5, 0.3, 0.2, 0.6, 0.4, 0.1], methods=[AB(), LogOpt()])
    assert {row["method"] for row in rows(planned) if "method" in row} == {"AB()", "LogOpt()"}
    answer = decide(LOG)
    assert [row["what"] for row in rows(answer) if "what" in row][:2] == ["decision", "A/B"]
    assert next(row["difference"] for row in rows(answer) if "what" in row) == answer.decision.difference
    with pytest.raises(ValueError, match="no method to draw"):
        plan(PAIR, [0.5, 0.3, 0.2, 0.6, 0.4, 0.1], methods=[TeamDraft()]).chart()


def test_the_chart_of_a_report_is_its_course(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=2, method="AB()", timeout=60.0, seed=2) as trial:
        for visitor in range(260):
            shown = trial.rank("q", a=["1", "2"], b=["2", "3"], unit=f"user-{visitor}")
            if shown.ranking[0] == "1" or visitor % 3 == 0:
                trial.click(shown.id, shown.ranking[0])
        report = trial.report()
    rows = [row for sheet in report.chart().to_dict()["datasets"].values() for row in sheet if "low" in row]
    told = [one for one in report.band if np.isfinite(one.low)]
    assert len(rows) == len(told) > 1
    assert [row["difference"] for row in rows] == [one.difference for one in told]
    (now,) = [row for sheet in report.model_copy(update={"band": ()}).chart().to_dict()["datasets"].values()
              for row in sheet if "what" in row]  # fmt: skip
    assert (now["difference"], now["low"]) == (report.difference, report.interval.low)


def test_progress_is_told_without_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    report = notebook.Progress("planning")
    for done in range(1, 1_001):
        report(done, 1_000)
    told = capsys.readouterr().err
    assert told.startswith("\rplanning: 1 of 1,000")
    assert told.endswith("\rplanning: 1,000 of 1,000, 0 s\n")
    assert told.count("\r") < 20  # not a thousand


def test_progress_is_renewed_in_place_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    handle = SimpleNamespace(update=lambda content, raw: shown.append(content["text/html"]))

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        shown.append(content["text/plain"])
        return handle

    monkeypatch.setattr(notebook, "_shell", lambda: SimpleNamespace(display=display))
    report = notebook.Progress("<b>", every=0.0)
    report(1, 2)
    report(2, 2)
    assert shown[0] == "<b>: 1 of 2, 0 s"
    assert "&lt;b&gt;: 2 of 2" in shown[1]
    assert "svg" in shown[1]
