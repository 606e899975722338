"""The command `ranktrial compare`: one pair of rankers on simulated users, compared by every method."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from ranktrial.cli.console import out, plain_errors, progress_bar
from ranktrial.cli.data_source import DataOption, PrefixOption, open_data
from ranktrial.data import Dataset, train_rankers
from ranktrial.methods import (
    AB,
    Balanced,
    Counterfactual,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    Trajectory,
)
from ranktrial.rankings import Pair
from ranktrial.seeds import children
from ranktrial.users import User, position_based, rank_decay


@dataclass(frozen=True)
class World:
    """Two rankers and the users who click on them; the truth is known exactly."""

    dataset: Dataset
    pair: Pair
    user: User
    ctr_a: float
    ctr_b: float

    @property
    def delta(self) -> float:
        return self.ctr_a - self.ctr_b


@dataclass(frozen=True)
class Row:
    """How one method fared.

    Attributes:
        method: As it is written.
        estimates: The estimate at each checkpoint.
        errors: Its distance from the true difference.
        prefers: "A", "B" or "neither" at the last checkpoint.
        ctr: Clicks per impression that users gave while the method ran.
        impressions_per_second: Of the simulation on one core, without set-up (for LogOpt with the optimisation of its
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def build_world(dataset: Dataset, *, k: int, seed: int, progress: Callable[[int, int], None] | None = None) -> World:
    """Train two linear rankers on 100 queries each and let position-based users (theta = 1/rank) click."""
    training, ties = children(seed, 2)
    rankers = train_rankers(dataset, 2, seed=training, rankers="code", progress=progress)
    scores = [rankers.scores(dataset, i) for i in range(2)]
    theta = rank_decay(k)
    pair = Pair.from_scores(scores[0], scores[1], dataset.offsets, k, seed=ties).knowing(theta=theta)
    user = position_based(dataset.zeta(), theta)
    return World(dataset, pair, user, *pair.ctr(user))


def compared_methods() -> list[Method]:
    interleaving: list[Method] = [TeamDraft(), Probabilistic(), Optimized(), Balanced()]
    counterfactual = [Counterfactual(logging=logging) for logging in ("uniform", "ab")]
    logopt = [LogOpt(policy="network"), LogOpt(), LogOpt(estimate="rank-aware"), LogOpt(bias="estimated")]
    return [AB(), AB(estimate="means"), *interleaving, *counterfactual, *logopt]


def run_method(method: Method, world: World, checkpoints: list[int], *, seed: int) -> Row:
    pair, user = world.pair, world.user
    # Displays that are listed beforehand are set-up, and so is compiling: neither counts as the simulation's time.
    listed = method.displays(pair) if isinstance(method, (AB, Optimized, Balanced)) else None
    at_once = method == AB(estimate="means")

    def simulate(points: list[int]) -> Trajectory:
        if listed is not None and not at_once:
            return listed.simulate(user, points, seed=seed)
        return method.simulate(pair, user, points, seed=seed, shortcut=False)

    if not isinstance(method, LogOpt):
        simulate([1])
    start = time.perf_counter()
    run = simulate(checkpoints)
    elapsed = time.perf_counter() - start
    final = run.estimate[-1]
    return Row(
        str(method),
        tuple(run.estimate.tolist()),
        tuple(run.absolute_error(world.delta).tolist()),
        "A" if final > 0 else "B" if final < 0 else "neither",
        float(run.ctr[-1]),
        None if at_once else checkpoints[-1] / elapsed,
        isinstance(method, (AB, Counterfactual, LogOpt)),
    )


def checkpoints_to(impressions: int) -> list[int]:
    """Powers of ten from 1,000, ending with the number asked for."""
    powers = [10**e for e in range(3, 10) if 10**e < impressions]
    return sorted({*powers, impressions})


def compare_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
    data: DataOption = "yahoo-like",
    prefix: PrefixOption = None,
    queries: Annotated[int, typer.Option(min=200, help="Queries of a synthetic set.")] = 2000,
    impressions: Annotated[int, typer.Option(min=1000, help="Impressions each method gets.")] = 1_000_000,
    k: Annotated[int, typer.Option("--k", min=1, max=12, help="Results on a page.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another pair of rankers.")] = 1,
) -> None:
    """Compare two rankers with every method on simulated users, and see how far off each is.

    Trains two linear rankers, works out the true difference in clicks, then lets every method collect clicks from
    position-based users.
    """
    with plain_errors():
        dataset = open_data(data, queries, prefix)
        with progress_bar("training two rankers") as progress:
            world = build_world(dataset, k=k, seed=seed, progress=progress)
        points = checkpoints_to(impressions)
        methods = compared_methods()
        rows = []
        with progress_bar("simulating users") as progress:
            for done, method in enumerate(methods):
                progress(done, len(methods))
                rows.append(run_method(method, world, points, seed=seed))
    if as_json:
        truth = {"ctr_a": world.ctr_a, "ctr_b": world.ctr_b, "delta": world.delta}
        print(json.dumps({**truth, "checkpoints": points, "methods": [row.to_dict() for row in rows]}, indent=2))
        return
    out.print(
        f"[bold]{dataset.name}[/]: {dataset.n_queries:,} queries, {dataset.n_documents:,} documents. "
        f"True clicks per search: A {world.ctr_a:.4f}, B {world.ctr_b:.4f}, difference {world.delta:+.4f}.\n",
        highlight=False,
    )
    print_comparison(world, points, rows)
    out.print(
        "Errors in brackets: an interleaving outcome is not a difference in clicks, so it does not tend to the true "
        "difference; `ranktrial proof` shows cases where even its sign is wrong.",
        highlight=False,
    )


def print_comparison(world: World, points: Sequence[int], rows: Sequence[Row]) -> None:
    wide = out.width >= 120
    shown = range(len(points)) if wide else range(len(points))[-1:]
    table = Table(
        title="estimate of the difference after that many searches",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", overflow="fold", ratio=1)
    for i in shown:
        table.add_column(f"{points[i]:,}", justify="right", no_wrap=True)
    for heading in ("error", "prefers", *(["clicks/search"] if wide else []), "searches/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    better = "A" if world.delta > 0 else "B"
    for row in rows:
        colour = "green" if row.prefers == better else "red"
        cells = [
            escape(row.method),
            *(f"{row.estimates[i]:+.4f}" for i in shown),
            f"{row.errors[-1]:.4f}" if row.comparable else f"({row.errors[-1]:.4f})",
            f"[{colour}]{row.prefers}[/]",
        ]
        if wide:
            cells.append(f"{row.ctr:.4f}")
        table.add_row(*cells, _speed(row.impressions_per_second))
    out.print(table)


def _speed(per_second: float | None) -> str:
    if per_second is None:
        return "at once"
    return f"{per_second / 1e6:.1f} M" if per_second > 1e6 else f"{per_second / 1e3:.0f} k"
