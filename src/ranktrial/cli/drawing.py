"""Charts that commands draw on demand, with the extra "charts"."""

from __future__ import annotations

from pathlib import Path

from ranktrial import checks, extras

if refusal := extras.missing("charts", "a chart"):
    raise refusal

from ranktrial.analysis.planning.results import Plan
from ranktrial.position_bias import PositionBias
from ranktrial.report.charts import as_spec, save_chart
from ranktrial.report.drawing import chart
from ranktrial.report.pages import Figure, Page, Section
from ranktrial.report.theme import FORMATS


def check_plan_file(file: Path) -> None:
    """Refuse a name that does not say how a plan is to be drawn."""
    checks.one_of("--chart ends in", file.suffix.lstrip("."), (*FORMATS, "html"))


def draw_plan(result: Plan, file: Path) -> None:
    """Detectable difference by searches, a line per method that tends to Delta."""
    try:
        drawn = as_spec(chart(result))
    except ValueError as problem:
        raise ValueError(f"--chart: {problem}") from None
    if not file.absolute().parent.is_dir():
        raise ValueError(f"--chart: cannot write {file}, its folder does not exist")
    if file.suffix == ".html":
        figure = Figure(drawn, f"Dotted: the difference to find, {result.delta:.4g} clicks per search.")
        Page("Plan of a trial", [Section("Searches to a decision", [figure, *result.verdict])]).write(file)
    else:
        save_chart(drawn, file.with_suffix(""), formats=[file.suffix.lstrip(".")])


def draw_bias(bias: PositionBias, file: Path) -> None:
    """Position bias by rank, with its intervals."""
    save_chart(as_spec(chart(bias)), file.with_suffix(""), formats=(file.suffix.removeprefix("."),))
