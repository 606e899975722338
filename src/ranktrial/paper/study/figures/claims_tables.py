"""Tables of the paper's claims, for the report and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ranktrial.paper.study.claims import FAILS, HOLDS, ClaimResult
from ranktrial.report.pages import Table

CLAIMS_TEXT = (
    "Ours is given with a 95 % interval over pairs of rankers. A claim holds on a data set (✓) if the whole interval is within "
    "the stated range, does not hold (✗) if all of it is outside, and cannot be told from so many pairs (?) otherwise. LogOpt "
    "is the paper's here, with a trained network: as published if the study has it, else with our click model and gradient. "
    "Rows with * are without noise: limits of the estimates."
)
MARKS = {HOLDS: "✓", FAILS: "✗"}
LACKING_TEXT = "Not tested, for want of:"


def untested(found: Sequence[ClaimResult]) -> dict[str, list[str]]:
    """Claims that could not be tested, by what is lacking."""
    lacking: dict[str, dict[str, None]] = {}
    for one in found:
        if one.lacking is not None:
            lacking.setdefault(one.lacking, {})[f"{one.number} {one.data}"] = None
    return {reason: list(claims) for reason, claims in lacking.items()}


def side_by_side(found: Sequence[ClaimResult]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a table with a line a claim and a column a data set, and the verdict over all of them."""
    tested = [one for one in found if one.lacking is None]
    sets = list(dict.fromkeys(one.data for one in tested))
    rows: dict[tuple[str, ...], dict[str, ClaimResult]] = {}
    for one in tested:
        rows.setdefault((one.number, one.claim, one.paper, one.holds_if), {})[one.data] = one
    cells = [
        [*claim, *(_cell(by_data.get(name)) for name in sets), overall(list(by_data.values()))]
        for claim, by_data in rows.items()
    ]
    return ["", "claim", "paper", "holds if", *sets, "verdict"], cells


def _cell(one: ClaimResult | None) -> str:
    return "" if one is None else f"{one.text} {mark(one)}"


def mark(one: ClaimResult) -> str:
    """A sign for a verdict: ✓ holds, ✗ does not, ? cannot be told."""
    return "✗" if one.verdict.startswith("differs") else MARKS.get(one.verdict, "?")


def overall(found: Sequence[ClaimResult]) -> str:
    """One verdict from those on all data sets: what it depends on where they differ."""
    by_mark = {sign: [one.data for one in found if mark(one) == sign] for sign in "✓✗?"}
    holds, fails, open_ = by_mark.values()
    verdicts = {HOLDS: holds, FAILS: fails}
    reasons = {one.verdict for one in found if one.verdict.startswith("differs")}
    if holds and fails:
        text = f"depends on the data: holds on {', '.join(holds)}, not on {', '.join(fails)}"
    elif holds or fails:
        text = next(verdict for verdict, sets in verdicts.items() if sets)
        text += "".join(f" ({reason})" for reason in reasons)
    else:
        return "cannot be told"
    return text + (f"; cannot be told on {', '.join(open_)}" if open_ else "")


def claims_tables(found: Sequence[ClaimResult]) -> Iterator[Table]:
    """The claims for the report: those that were tested, then what the others lack."""
    yield Table(*side_by_side(found))
    rows = [[reason, ", ".join(claims)] for reason, claims in untested(found).items()]
    if rows:
        yield Table(["lacking", "claims"], rows, LACKING_TEXT)


def claims_markdown(found: Sequence[ClaimResult]) -> str:
    """The claims as a Markdown table."""
    columns, rows = side_by_side(found)
    lines = ["# The paper's claims", "", CLAIMS_TEXT, "", *map(_line, [columns, ["---"] * len(columns), *rows])]
    lacking = [f"* {why}: {', '.join(which)}" for why, which in untested(found).items()]
    if lacking:
        lines += ["", LACKING_TEXT, "", *lacking]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
