"""The command `ranktrial compare`: one pair of rankers on simulated users, compared by every method."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.markup import escape

from ranktrial.cli.console import err, number_table, out, progress_bar, say
from ranktrial.cli.options import JsonOption, SeedOption
from ranktrial.cli.two_rankers import CtrOption, TwoRankers, names_rankers, read_two_rankers
from ranktrial.methods import (
    AB,
    Balanced,
    Counterfactual,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    TooManyDisplaysError,
    Trajectory,
)
from ranktrial.paper.logopt_network import LogOptNetwork
from ranktrial.users import User

DEFAULT_DATA = "yahoo-like"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two rankers and the users who click on them; the truth is known exactly.

    Attributes:
        rankers: The rankers and what they rank.
        user: Who clicks.
        ctr_a: True clicks per impression of ranker A.
        ctr_b: Of ranker B.
    """

    rankers: TwoRankers
    user: User
    ctr_a: float
    ctr_b: float

    @classmethod
    def of(cls, rankers: TwoRankers, ctr: float | None = None) -> Comparison:
        """Build the comparison with a user who clicks by the labels, scaled to a click rate of ``ctr`` if it is given."""
        user = rankers.user(ctr)
        return cls(rankers, user, *rankers.pair.ctr(user))

    @property
    def difference(self) -> float:
        """B against A: positive where B gets more clicks."""
        return self.ctr_b - self.ctr_a


@dataclass(frozen=True)
class ComparedMethod:
    """Result of one method on the simulated users.

    Attributes:
        method: The method as it is written, such as "LogOpt()".
        estimates: The estimate at each checkpoint, of B against A.
        errors: Its distance from the true difference.
        prefers: "A", "B" or "neither" at the last checkpoint.
        ctr: Clicks per impression that users gave while the method ran.
        impressions_per_second: Speed of the simulation on one core, without set-up (for LogOpt with the optimisation of its
            policy); None where a whole run is drawn at once.
        comparable: The estimate is a difference in clicks, so its error goes to zero; False for interleaving.
    """

    method: str
    estimates: tuple[float, ...]
    errors: tuple[float, ...]
    prefers: str
    ctr: float
    impressions_per_second: float | None
    comparable: bool


def compared_methods() -> list[Method]:
    interleaving: list[Method] = [TeamDraft(), Probabilistic(), Optimized(), Balanced()]
    counterfactual = [Counterfactual(logging=logging) for logging in ("uniform", "ab")]
    logopt = [
        LogOptNetwork(),
        LogOpt(bias="known", relevance="constant", estimate="ips", loss=None, keep=0, holdback=0),
        LogOpt(bias="known"),
        LogOpt(),
    ]
    return [AB(estimate="paper"), AB(), *interleaving, *counterfactual, *logopt]


def run_method(method: Method, comparison: Comparison, checkpoints: list[int], *, seed: int) -> ComparedMethod:
    """Simulate a method on a pair of rankers and measure how far off it is."""
    pair, user = comparison.rankers.pair, comparison.user
    # Displays that are listed beforehand are set-up, and so is compiling: neither counts as the simulation's time.
    listed = method.displays(pair) if method.traits.lists_displays and method.traits.averages_impressions else None

    def simulate(points: list[int]) -> Trajectory:
        if listed is not None:
            return listed.simulate(user, points, seed=seed)
        return method.simulate(pair, user, points, seed=seed, shortcut=False)

    if not method.traits.learns_at:
        simulate([1])
    start = time.perf_counter()
    run = simulate(checkpoints)
    elapsed = time.perf_counter() - start
    final = run.estimate[-1]
    return ComparedMethod(
        str(method),
        tuple((-run.estimate).tolist()),
        tuple(run.absolute_error(-comparison.difference).tolist()),
        "A" if final > 0 else "B" if final < 0 else "neither",
        float(run.ctr[-1]),
        checkpoints[-1] / elapsed if method.traits.averages_impressions else None,
        method.traits.tends_to_delta,
    )


def checkpoints_to(impressions: int) -> list[int]:
    """Powers of ten from 1,000, ending with the number asked for."""
    powers = [10**e for e in range(3, 10) if 10**e < impressions]
    return sorted({*powers, impressions})


@names_rankers
def compare_command(
    rankers: dict[str, Any],
    as_json: JsonOption = False,
    queries: Annotated[int, typer.Option(min=200, help="Queries of a synthetic set.")] = 2000,
    ctr: CtrOption = None,
    impressions: Annotated[int, typer.Option(min=1000, help="Simulated searches for each method.")] = 1_000_000,
    seed: SeedOption = 1,
) -> None:
    """Compare two rankers with every method on simulated users, and see how far off each is.

    Users click by the labels, so the true difference in clicks is known
    exactly. From two TREC run files and judgements of their documents:

      ranktrial compare a.run b.run --qrels judged.qrels

    From labelled documents with two files of scores, or two rankers trained
    on them; without any argument, on a synthetic set:

      ranktrial compare a.scores b.scores --data train.txt
      ranktrial compare --data mslr-like

    Users look at a rank with probability 1/rank (--eta, --theta) and click
    what they look at with probability 0.1 for grade 0 to 1 for the highest
    (the highest of the qrels; 4 with --data).
    """
    if rankers["files"] == (None, None) and rankers["data"] is None:
        rankers["data"] = DEFAULT_DATA
    if rankers["data"] is None and rankers["qrels"] is None:
        raise ValueError("run files say nothing about clicks: give judgements of their documents with --qrels")
    both = read_two_rankers(**rankers, queries=queries, seed=seed)
    comparison = Comparison.of(both, ctr)
    points = checkpoints_to(impressions)
    rows, left_out = run_methods(compared_methods(), comparison, points, seed=seed)
    if as_json:
        truth = {"ctr_a": comparison.ctr_a, "ctr_b": comparison.ctr_b, "difference": comparison.difference}
        methods = {"methods": [asdict(row) for row in rows], "left_out": left_out}
        print(json.dumps({**truth, **both.judged_dict(), "checkpoints": points, **methods}, indent=2))
        return
    out.print(
        f"[bold]{escape(both.name)}[/]: {both.pair.n_queries:,} queries, {both.pair.n_documents:,} documents. "
        f"True clicks per search: A {comparison.ctr_a:.4f}, B {comparison.ctr_b:.4f}, "
        f"B - A {comparison.difference:+.4f}.",
        highlight=False,
    )
    if both.judged:
        out.print(both.judged_text(), highlight=False)
    out.print()
    print_comparison(comparison, points, rows)
    out.print(
        "Errors in brackets: an interleaving outcome is not a difference in clicks, so it does not tend to the true "
        "difference; `ranktrial proof` shows cases where even its sign is wrong.",
        highlight=False,
    )
    for line in left_out:
        say(f"left out {line}", of=err, style="yellow")


def run_methods(
    methods: Sequence[Method], comparison: Comparison, checkpoints: list[int], *, seed: int
) -> tuple[list[ComparedMethod], list[str]]:
    """Run each method on the simulated users; return the results, and a line for each method with too many displays."""
    rows, left_out = [], []
    with progress_bar("simulating users") as progress:
        for done, method in enumerate(methods):
            progress(done, len(methods))
            try:
                rows.append(run_method(method, comparison, checkpoints, seed=seed))
            except TooManyDisplaysError as problem:
                left_out.append(f"{method}: {problem}")
    return rows, left_out


def print_comparison(comparison: Comparison, points: Sequence[int], rows: Sequence[ComparedMethod]) -> None:
    wide = out.width >= 120
    shown = range(len(points)) if wide else range(len(points))[-1:]
    headings = [f"{points[i]:,}" for i in shown] + ["error", "prefers", *["clicks/search"] * wide, "searches/s"]
    table = number_table("estimate of B - A after that many searches", *headings, text="method")
    better = "B" if comparison.difference > 0 else "A"
    for row in rows:
        colour = "green" if row.prefers == better else "red"
        cells = [
            escape(row.method),
            *(f"{row.estimates[i]:+.4f}" for i in shown),
            f"{row.errors[-1]:.4f}" if row.comparable else f"({row.errors[-1]:.4f})",
            f"[{colour}]{row.prefers}[/]",
            *[f"{row.ctr:.4f}"] * wide,
        ]
        speed = row.impressions_per_second or 0.0
        told = f"{speed / 1e6:.1f} M" if speed > 1e6 else f"{speed / 1e3:.0f} k"
        table.add_row(*cells, told if speed else "at once")
    out.print(table)
