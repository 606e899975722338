"""Figures of a study as files with their data, an interactive report, and the table of the paper's claims; one file a kind.

Figures 1 to 4 are the paper's, with its methods: a panel per data set. Those from 5 on are ours: the systematic error of
interleaving without noise, what users got, how many impressions the same error takes, our methods beside the paper's best, and
expected beside simulated runs. No panel has more than eight lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranktrial import checks
from ranktrial.paper.study.claims import ClaimResult, findings
from ranktrial.paper.study.curves import FEWEST
from ranktrial.paper.study.figures.claims_tables import (
    CLAIMS_TEXT,
    claims_markdown,
    claims_tables,
    side_by_side,
    untested,
)
from ranktrial.paper.study.figures.clicks import rankers_figure, users_figure
from ranktrial.paper.study.figures.drawing import Drawing, Names
from ranktrial.paper.study.figures.error_curves import expectation_figure, logging_figure, methods_figure, our_figure
from ranktrial.paper.study.figures.impressions_needed import needed_records, needed_tables, ratios_figure
from ranktrial.paper.study.figures.wrong_preferences import limits_figure, wrong_preferences_figure, wrong_signs_figure
from ranktrial.paper.study.plan import StudyPlan
from ranktrial.paper.study.results import DataResults, read_results
from ranktrial.report.charts import Record, save_chart, save_rows
from ranktrial.report.pages import Figure, Page, Section
from ranktrial.report.theme import FORMATS
from ranktrial.texts import counted

__all__ = ["DrawnStudy", "draw_study", "side_by_side", "untested"]

PAPERS = (rankers_figure, methods_figure, logging_figure, wrong_preferences_figure)
OURS = (our_figure, limits_figure, wrong_signs_figure, users_figure, ratios_figure)
FORMS = {"paper": PAPERS, "ours": OURS, "both": (*PAPERS, *OURS)}
EXPECTED_TEXT = "what runs come to on average, worked out from the methods' laws"
HOW_TEXT = (
    "Click a method in a legend to pick it out (shift-click for more, double click for all); drag a chart to move it, shift "
    "and the wheel to zoom, double click to return."
)
NEEDED_TEXT = (
    "Read off the mean curves, on straight lines in log-log between checkpoints. The absolute error of interleaving contains "
    "that its x is on another scale than Delta. Small differences mean nothing with few pairs: figure 7 has the intervals."
)


@dataclass(frozen=True)
class DrawnStudy:
    """The files of a drawn study, with the numbers that people ask for.

    Attributes:
        files: All of it.
        findings: The claims.
        ratios: Impressions needed, as ratios to baselines.
    """

    files: tuple[Path, ...]
    findings: tuple[ClaimResult, ...]
    ratios: tuple[Record, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": [str(file) for file in self.files],
            "claims": [one.to_dict() for one in self.findings],
            "ratios": list(self.ratios),
        }


def draw_study(
    path: Path,
    out: Path | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    form: str = "both",
    simulated: Path | None = None,
) -> DrawnStudy:
    """Draw a study, finished or not, into ``out`` (the study's own folder ``figures`` by default).

    ``form`` chooses the paper's figures, ours, or both. With the folder of a ``simulated`` study of the same data sets, one
    figure more shows single runs beside what they come to on average. Methods that have hardly begun on a set are left out.
    """
    for name in formats:
        checks.one_of("format", name, FORMATS)
    checks.one_of("form", form, FORMS)
    plan, results = read_results(path)
    folder = out or path / "figures"
    drawn = [one.begun(FEWEST) for one in results]
    names = Names.of(drawn)
    drawings = [one for figure in FORMS[form] for one in figure(drawn, names)]
    if simulated is not None:
        drawings += expectation_figure(drawn, read_results(simulated)[1], names)
    found = findings(results)
    needed = list(needed_records(drawn, names))
    files: list[Path] = []
    for one in drawings:
        files += save_chart(one.chart, folder / one.name, formats=formats, rows=one.records)
    files.append(save_rows(needed, folder / "impressions_needed.csv"))
    files.append(save_rows([one.to_dict() for one in found], folder / "claims.csv"))
    markdown = folder / "claims.md"
    markdown.write_text(claims_markdown(found), encoding="utf-8")
    page = _report(drawings, found, needed, _summary(plan, results))
    files += [markdown, page.write(folder / "report.html")]
    ratios = (record for one in drawings if one.name == "figure7_impressions" for record in one.records)
    return DrawnStudy(tuple(files), tuple(found), tuple(ratios))


def _summary(plan: StudyPlan, results: Sequence[DataResults]) -> str:
    total = sum(1 for _ in plan.tasks())
    done = sum(len(runs.pairs) for one in results for runs in one.runs.values())
    unfinished = f" {total - done:,} of {total:,} tasks have no result yet." if done < total else ""
    pairs = max(data.at_most(plan.pairs) for data in plan.data)
    return (
        f"{counted(len(plan.data), 'data set')}, {counted(len(plan.methods), 'method')}, "
        f"{counted(pairs, 'pair')} of rankers on each, {plan.impressions:,} impressions of each method on each pair: "
        f"{'simulated' if plan.simulate else EXPECTED_TEXT}.{unfinished} {HOW_TEXT}"
    )


def _report(drawings: Sequence[Drawing], found: Sequence[ClaimResult], needed: Sequence[Record], summary: str) -> Page:
    sections = [Section(one.title, [Figure(one.chart, one.caption), *one.tables]) for one in drawings]
    sections.append(Section("Impressions to an error", [NEEDED_TEXT, *needed_tables(needed)]))
    sections.append(Section("Claims of the paper", [CLAIMS_TEXT, *claims_tables(found)]))
    return Page("Comparing rankers: a study", sections, summary)
