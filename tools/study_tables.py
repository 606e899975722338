"""The tables of docs/study.md from the folders of finished studies, as Markdown: python tools/study_tables.py FOLDER...

A folder may be unfinished; every number then comes from the pairs that are there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ranktrial.study.claims import PAPER_INTERLEAVING, Finding, findings
from ranktrial.study.curves import FEWEST, impressions_ratio, means
from ranktrial.study.labels import ROLES
from ranktrial.study.results import DataResults, Runs, read_results

AT = (1e3, 1e4, 1e5, 3e6)
SIZES = ((0.0, 0.01), (0.01, 0.03), (0.03, np.inf))
BASELINES = ("ab", "ab-means", "network-estimated")


def main() -> None:
    every = [data for folder in sys.argv[1:] for data in read_results(Path(folder))[1]]
    found = findings(every)
    tables: dict[str, Iterator[Sequence[str]]] = {
        "the paper says": headlines(every, found),
        "every claim": claims(every, found),
        "pairs and rankers": rankers(every),
        "absolute error x 1,000, after 10^3 / 10^4 / 10^5 / 3 x 10^6": by_role(every, absolute),
        "wrong preference without noise": wrong(every),
        "squared error of single searches, at the end": by_role(every, squared),
        "times the searches of " + " / ".join(ROLES[one][0] for one in BASELINES): by_role(every, needed),
        "clicks per search against the mean of A and B": by_role(every, users),
    }
    for title, rows in tables.items():
        print(f"\n| {title} | " + " | ".join(data.data for data in every) + " |")
        print("|---" * (len(every) + 1) + "|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
    told = [one.verdict.split(" ")[0] for one in found if one.lacking is None]
    counts = {verdict: told.count(verdict) for verdict in dict.fromkeys(told)}
    print(f"\nverdicts: {counts}; " + ", ".join(f"{data.data} {_pairs(data)}" for data in every))


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
    ("A/B's and LogOpt's errors keep falling (slope in log-log, bias estimated)", "2a", "LogOpt, bias estimated"),
    ("LogOpt's absolute error is below all interleaving from so many searches on: bias known", "2b", "known: absolute"),
    ("- bias estimated", "2b", "estimated: absolute"),
    ("LogOpt needs about half of an A/B test's searches: bias known", "3a", f"known: {SAME} {MEANS}"),
    ("- bias estimated", "3a", f"estimated: {SAME} {MEANS}"),
    ("On MSLR, LogOpt's error is twice A/B's at 10^4 searches: bias known", "3c", f"known: {BY} {MEANS} at 10,000"),
    ("- bias estimated", "3c", f"estimated: {BY} {MEANS} at 10,000"),
    ("Uniform logging needs about 10 times LogOpt's searches", "4a", "bias known"),
    ("A/B logging needs about twice LogOpt's", "4b", "bias known"),
    ("LogOpt is near the Oracle from 100 searches on (squared error by the Oracle's)", "4d", "bias known"),
)  # fmt: skip


def headlines(every: Sequence[DataResults], found: Sequence[Finding]) -> Iterator[Sequence[str]]:
    """The rows that a reader of the paper looks for first."""
    for label, number, part in HEADLINES:
        mine = {one.data: one for one in found if one.number == number and part in one.claim and one.text}
        yield [label, *(mine[data.data].text if data.data in mine else "" for data in every)]


def claims(every: Sequence[DataResults], found: Sequence[Finding]) -> Iterator[Sequence[str]]:
    """Every claim, with our numbers side by side."""
    for key in dict.fromkeys((one.number, one.claim) for one in found):
        mine = {one.data: one for one in found if (one.number, one.claim) == key and one.text}
        cells = [f"{one.text}: {one.verdict}" if (one := mine.get(data.data)) else "" for data in every]
        yield [f"{key[0]} {key[1]}", *cells]


def rankers(every: Sequence[DataResults]) -> Iterator[Sequence[str]]:
    firsts = [next(iter(data.runs.values())) for data in every]
    yield ["pairs", *(_pairs(data) for data in every)]
    both = [np.concatenate([runs.ctr_a, runs.ctr_b]) for runs in firsts]
    yield ["clicks per search of the rankers", *(f"{one.mean():.3f} (sd {one.std():.3f})" for one in both)]
    yield ["median abs(Delta)", *(f"{np.median(np.abs(runs.delta)):.3f}" for runs in firsts)]
    yield ["pairs below .01", *(f"{(np.abs(runs.delta) < 0.01).mean():.0%}" for runs in firsts)]


def by_role(every: Sequence[DataResults], cell: Callable[[DataResults, Runs], str]) -> Iterator[Sequence[str]]:
    for part, (label, _) in ROLES.items():
        runs = [one if (one := data.playing(part)) and len(one.pairs) >= FEWEST else None for data in every]
        if any(one is not None for one in runs):
            yield [label, *("" if one is None else cell(data, one) for data, one in zip(every, runs))]


def absolute(_: DataResults, runs: Runs) -> str:
    curve = 1000 * means(runs.errors["absolute_error"])
    return " / ".join(f"{curve[runs.nearest(at)]:.3g}" for at in AT)


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
