"""Tables of docs/research/study.md from folders of studies: python tools/study_tables.py FOLDER... [--page PAGE]

A folder may be unfinished; every number then comes from the pairs that are there. With ``--page`` they are put into a page that
has these tables already: rows by their labels, where there is a number; what else stands in a row, and other rows, stay.
With ``--against METHOD``, as it is written in the plan, the errors of all methods by those of this one, as for ``departures``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ranktrial.paper.study.claims import PAPER_INTERLEAVING, ClaimResult, findings
from ranktrial.paper.study.curves import FEWEST, bootstrap, error_slope, impressions_ratio, means
from ranktrial.paper.study.figures.claims_tables import side_by_side
from ranktrial.paper.study.labels import ROLES
from ranktrial.paper.study.results import DataResults, Runs, common, read_results

AT = (1e3, 1e4, 1e5, 3e6)
SIZES = ((0.0, 0.01), (0.01, 0.03), (0.03, np.inf))
KNOWN = {
    "adaptive-estimated": "adaptive-known",
    "rank-aware-estimated": "rank-aware-known",
    "budget-estimated": "rank-aware-known",
}
SLOPES = ("ab-means", "network-estimated", *KNOWN)
BASELINES = ("ab", "ab-means", "network-estimated")


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("folders", nargs="+", type=Path)
    given.add_argument("--page", type=Path)
    given.add_argument("--against")
    arguments = given.parse_args()
    every = [data for folder in arguments.folders for data in read_results(folder)[1]]
    if arguments.against is not None:
        lines = [["", *(data.data for data in every)], ["---"] * (len(every) + 1), *against(every, arguments.against)]
        print("\n".join(map(_line, lines)))
        return
    found = findings(every)
    tables: dict[str, Iterator[Sequence[str]]] = {
        "the paper says": headlines(every, found),
        "pairs and rankers": rankers(every),
        "absolute error x 1,000, after 10^3 / 10^4 / 10^5 / 3 x 10^6": by_role(every, absolute),
        "wrong preference without noise": wrong(every),
        "slope of the absolute error in log-log, last two decades": by_role(every, slope, SLOPES),
        "absolute error x 1,000 at the end, on the same pairs": beside_known(every),
        "squared error of single searches, at the end": by_role(every, squared),
        "times the searches of " + " / ".join(ROLES[one][0] for one in BASELINES): by_role(every, needed),
        "clicks per search against the mean of A and B": by_role(every, users),
    }
    names = [data.data for data in every]
    written = {title: [_cells(_line(row)) for row in rows] for title, rows in tables.items()}
    if arguments.page is not None:
        text = arguments.page.read_text()
        for title, rows in written.items():
            text = put_into(text, title, names, rows)
        columns, rows = side_by_side(found)
        arguments.page.write_text(put_into(text, "", columns[1:], [_cells(_line(row)) for row in rows], key=2))
    for title, rows in written.items():
        print("\n".join(["", _line([title, *names]), "|---" * (len(every) + 1) + "|", *map(_line, rows)]))
    told = [one.verdict.split(" ")[0] for one in found if one.lacking is None]
    counts = {verdict: told.count(verdict) for verdict in dict.fromkeys(told)}
    print(f"\nverdicts: {counts}; " + ", ".join(f"{data.data} {_pairs(data)}" for data in every))


def put_into(page: str, title: str, names: Sequence[str], rows: Sequence[Sequence[str]], key: int = 1) -> str:
    """A page with cells of these rows in the table whose first column has this title and which has all of these columns."""
    lines = page.split("\n")

    def is_head(line: str) -> bool:
        columns = _cells(line)
        return bool(columns) and columns[0].startswith(title) and set(names) <= set(columns[1:])

    at = next((number for number, line in enumerate(lines) if is_head(line)), None)
    if at is None:
        return page
    columns = _cells(lines[at])
    end = next((n for n in range(at + 2, len(lines)) if not lines[n].startswith("|")), len(lines))
    waiting = [list(row) for row in rows]
    for number in range(at + 2, end):
        cells = _cells(lines[number])
        mine = next((row for row in waiting if row[:key] == cells[:key]), None)
        if mine is not None:
            waiting.remove(mine)
            for name, cell in zip(names[key - 1 :], mine[key:]):
                cells[columns.index(name)] = cell or cells[columns.index(name)]
            lines[number] = _line(cells)
    return "\n".join(lines[:end] + [_line(row) for row in waiting if len(row) == len(columns)] + lines[end:])


def _cells(line: str) -> list[str]:
    """Cells of a row of a Markdown table, as they are written there."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(re.sub(r"(?<!\\)[|]", r"\\|", cell) for cell in cells) + " |"


def _pairs(data: DataResults) -> str:
    counts = sorted({len(runs.pairs) for runs in data.runs.values()})
    return f"{counts[0]} to {counts[-1]} pairs" if len(counts) > 1 else f"{counts[0]} pairs"


SAME, BY, MEANS = (
    "impressions for the same absolute error, by A/B's",
    "absolute error by A/B's",
    "(difference in means)",
)
HEADLINES = (
    ("- team-draft", "1a*", "Team-draft: wrong preference without noise"),
    ("- probabilistic", "1a*", "Probabilistic: wrong preference without noise"),
    ("- optimized", "1a*", "Optimized: wrong preference without noise"),
    ("Of those pairs, most have abs(Delta) below 0.01*", "1e*", ""),
    ("Interleaving's absolute error stays above 0.01: team-draft", "1c", "Team-draft"),
    ("- optimized", "1c", "Optimized"),
    ("- the same, x rescaled as well as can be*: team-draft", "1c*", "Team-draft"),
    ("- optimized", "1c*", "Optimized"),
    ("LogOpt's error keeps falling (slope in log-log, bias estimated; A/B's is -0.5)", "2a", "LogOpt, bias estimated"),
    ("LogOpt's absolute error is below all interleaving from so many searches on: bias known", "2b", "known: absolute"),
    ("- bias estimated", "2b", "estimated: absolute"),
    ("LogOpt needs about half of an A/B test's searches (here: difference in means), on MSLR as many or fewer: bias known",
     "3a", f"known: {SAME} {MEANS}"),
    ("- bias estimated", "3a", f"estimated: {SAME} {MEANS}"),
    ("On MSLR, LogOpt's error is twice A/B's at 10^4 searches, a dip the paper cannot explain: bias known",
     "3c", f"known: {BY} {MEANS} at 10,000"),
    ("- bias estimated", "3c", f"estimated: {BY} {MEANS} at 10,000"),
    ("Uniform logging needs about 10 times LogOpt's searches", "4a", "bias known"),
    ("A/B logging needs about twice LogOpt's", "4b", "bias known"),
    ("LogOpt is near the Oracle from 100 searches on (squared error by the Oracle's)", "4d", "bias known"),
)  # fmt: skip


def headlines(every: Sequence[DataResults], found: Sequence[ClaimResult]) -> Iterator[Sequence[str]]:
    """The rows that a reader of the paper looks for first."""
    for label, number, part in HEADLINES:
        mine = {one.data: one for one in found if one.number == number and part in one.claim and one.text}
        yield [label, *(mine[data.data].text if data.data in mine else "" for data in every)]


def rankers(every: Sequence[DataResults]) -> Iterator[Sequence[str]]:
    firsts = [next(iter(data.runs.values())) for data in every]
    yield ["pairs", *(_pairs(data) for data in every)]
    both = [np.concatenate([runs.ctr_a, runs.ctr_b]) for runs in firsts]
    yield ["clicks per search of the rankers", *(f"{one.mean():.3f} (sd {one.std():.3f})" for one in both)]
    yield ["median abs(Delta)", *(f"{np.median(np.abs(runs.delta)):.3f}" for runs in firsts)]
    yield ["pairs below .01", *(f"{(np.abs(runs.delta) < 0.01).mean():.0%}" for runs in firsts)]


def by_role(
    every: Sequence[DataResults], cell: Callable[[DataResults, Runs], str], roles: Sequence[str] = tuple(ROLES)
) -> Iterator[Sequence[str]]:
    for part in roles:
        label, _ = ROLES[part]
        runs = [one if (one := data.playing(part)) and len(one.pairs) >= FEWEST else None for data in every]
        if any(one is not None for one in runs):
            yield [label, *("" if one is None else cell(data, one) for data, one in zip(every, runs))]


def absolute(_: DataResults, runs: Runs) -> str:
    curve = 1000 * means(runs.errors["absolute_error"])
    return " / ".join(f"{curve[runs.nearest(at)]:.3g}" for at in AT)


def slope(_: DataResults, runs: Runs) -> str:
    return error_slope(runs).text()


def beside_known(every: Sequence[DataResults]) -> Iterator[Sequence[str]]:
    """Errors at the end of methods with bias estimated, of the same with bias known and of two others; and the first by the
    second."""
    for part, known in KNOWN.items():
        cells = []
        for data in every:
            all_four = [data.playing(one) for one in (part, known, "network-estimated", "ab-means")]
            found = common(*(one for one in all_four if one is not None))
            if len(found) < len(all_four):
                cells.append("")
                continue
            errors = [one.errors["absolute_error"] for one in found]
            ratio = bootstrap(lambda a, b: float(a[-1] / b[-1]), *errors[:2])
            ends = " / ".join(f"{1000 * means(one)[-1]:.3f}" for one in errors)
            cells.append(f"{ends}; {ratio.text()}, {len(found[0].pairs)} pairs")
        yield [ROLES[part][0], *cells]


def squared(_: DataResults, runs: Runs) -> str:
    return f"{means(runs.errors['mean_squared_error'])[-1]:.3g}"


def users(_: DataResults, runs: Runs) -> str:
    both = (runs.ctr_a + runs.ctr_b) / 2
    return f"{runs.ctr.mean() / both.mean() - 1:+.1%}"


def needed(data: DataResults, runs: Runs) -> str:
    others = [data.playing(one) for one in BASELINES]
    ratios = [
        "-"
        if other is None or other.method == runs.method
        else f"{impressions_ratio(runs, other, 'absolute_error').value:.2f}"
        for other in others
    ]
    return " / ".join(ratios)


def against(every: Sequence[DataResults], method: str) -> Iterator[Sequence[str]]:
    """Absolute errors by those of one method on the same pairs, just after each of its fits and at the end, with intervals."""
    for other in dict.fromkeys(name for data in every for name in data.runs if name != method):
        yield [f"`{other}`", *(_ratios(*common(data.runs[other], data.runs[method])) for data in every)]


def _ratios(mine: Runs, base: Runs) -> str:
    errors = mine.errors["absolute_error"], base.errors["absolute_error"]
    places = sorted({mine.nearest(at) for at in (1.3e3, 1.3e4, 1.3e5, mine.impressions[-1])})
    ratios = (bootstrap(lambda a, b, at=at: float(a[at] / b[at]), *errors).text() for at in places)
    return " / ".join(ratios) + f", {len(mine.pairs)} pairs"


def wrong(every: Sequence[DataResults]) -> Iterator[Sequence[str]]:
    for part in PAPER_INTERLEAVING:
        cells = []
        for data in every:
            limits = data.limits_of(part)
            if limits is None:
                cells.append("")
                continue
            sizes, errs = np.abs(limits.delta), limits.wrong
            inside = [(sizes >= low) & (sizes < high) for low, high in SIZES]
            parts = ", ".join(f"{errs[some].sum():g} of {some.sum()}" for some in inside)
            cells.append(f"**{errs.mean():.1%}** of {len(errs)}: {parts}")
        yield [ROLES[part][0], *cells]


if __name__ == "__main__":
    main()
