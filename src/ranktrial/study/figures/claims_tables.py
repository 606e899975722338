"""Tables of the paper's claims, for the report and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranktrial.charts.pages import Table
from ranktrial.study.claims import Finding

CLAIMS_TEXT = (
    "Ours is given with a 95 % interval over pairs of rankers. A claim holds if the whole interval is within the stated range, "
    "does not hold if all of it is outside, and cannot be told from so few pairs otherwise. LogOpt is the paper's here, with a "
    "trained network: as published if the study has it, else with our click model and gradient. Rows with * are without noise: "
    "limits of the estimates, not simulated clicks."
)
LACKING_TEXT = "Not tested, for want of:"


def untested(found: Sequence[Finding]) -> dict[str, list[str]]:
    """Claims that could not be tested, by what is lacking."""
    lacking: dict[str, dict[str, None]] = {}
    for one in found:
        if one.lacking is not None:
            lacking.setdefault(one.lacking, {})[f"{one.number} {one.data}"] = None
    return {reason: list(claims) for reason, claims in lacking.items()}


def side_by_side(found: Sequence[Finding]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a table with a line a claim and a column a data set."""
    tested = [one for one in found if one.lacking is None]
    sets = list(dict.fromkeys(one.data for one in tested))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for one in tested:
        claim = (one.number, one.claim, one.paper, one.holds_if)
        rows.setdefault(claim, {})[one.data] = f"{one.text}: {one.verdict}"
    cells = [[*claim, *(by_data.get(name, "") for name in sets)] for claim, by_data in rows.items()]
    return ["", "claim", "paper", "holds if", *sets], cells


def claims_tables(found: Sequence[Finding]) -> Iterator[Table]:
    """The claims for the report: those that were tested, then what the others lack."""
    yield Table(*side_by_side(found))
    rows = [[reason, ", ".join(claims)] for reason, claims in untested(found).items()]
    if rows:
        yield Table(["lacking", "claims"], rows, LACKING_TEXT)


def claims_markdown(found: Sequence[Finding]) -> str:
    """The claims as a Markdown table."""
    columns, rows = side_by_side(found)
    lines = ["# The paper's claims", "", CLAIMS_TEXT, "", *map(_line, [columns, ["---"] * len(columns), *rows])]
    lacking = [f"* {why}: {', '.join(which)}" for why, which in untested(found).items()]
    if lacking:
        lines += ["", LACKING_TEXT, "", *lacking]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
