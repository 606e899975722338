"""Cost of a trial to visitors: impressions and clicks against an A/B test, for floors and budgets of clicks.

Means over 20 pairs of rankers for each data set, ten trained as the paper's text says and ten as the authors' code does (the
paper's own rankers on mslr_sample), each on 200 other queries; exact variances and clicks. "Times fewer" is against the
difference in means of an A/B test. States of knowledge: nothing; what places in the lists tell, from 2,000 and from 20,000
impressions in all; that and single documents, from the same 10 and 100 impressions a query. Every design has 10 % of plain
traffic and is valued rank-aware, with the prediction of its state. ``BUDGET_PAIRS`` and ``BUDGET_DATA`` (part of a name) make
less of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.logopt import data_sets
from benchmarks.variance import variance
from ranktrial.methods import AB, Beliefs, LogOpt, TeamDraft
from ranktrial.methods.beliefs import expected_beliefs
from ranktrial.methods.click_model import SimulatedTrial, planned_moments
from ranktrial.paper.data import Dataset, read_rankers, train_rankers
from ranktrial.paper.data.letor import read_letor
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay

PAIRS = int(os.environ.get("BUDGET_PAIRS", "20"))
ONLY = os.environ.get("BUDGET_DATA", "")
QUERIES = 200
METHOD = LogOpt(bias="known", holdback=0.1)
FLOORS = (0.5, 0.9, 1.0)
LOSSES = (0.0, 0.01, -0.02)
Row = dict[str, object]
Found = dict[tuple[str, str], tuple[float, float]]


def run() -> list[Row]:
    rows: list[Row] = []
    for dataset in everything():
        if ONLY not in dataset.name:
            continue
        for k in (10, 5):
            tables = []
            for number, (part, a, b) in enumerate(compared(dataset)):
                theta = rank_decay(k)
                pair = Pair.from_scores(a, b, part.offsets, k).knowing(theta=theta)
                tables.append(measured(pair, position_based(part.zeta(), theta), number))
                print(f"{dataset.name}, k = {k}: {number + 1} of {PAIRS}", file=sys.stderr, flush=True)
            rows += summary(f"{dataset.name}, k = {k}", tables)
    return rows


def everything() -> list[Dataset]:
    found, root = data_sets(), os.environ.get("RANKTRIAL_DATA")
    if root and (Path(root) / "mslr_sample").exists():
        found.append(read_letor(Path(root) / "mslr_sample" / "mslr_sample_all.txt.gz"))
    return found


def compared(dataset: Dataset) -> Iterator[tuple[Dataset, np.ndarray, np.ndarray]]:
    published = Path(os.environ.get("RANKTRIAL_DATA", "")) / "ictir2020_rankers" / "mslr_web30k_1000rankers.txt.gz"
    if "mslr_sample" in dataset.name and published.exists():  # the paper's own rankers
        rankers = read_rankers(published, dataset, allow_dropped=True)
        part = dataset.take(np.arange(min(QUERIES, dataset.n_queries)))
        for i in range(PAIRS):
            yield part, rankers.scores(part, 2 * i), rankers.scores(part, 2 * i + 1)
        return
    kinds = ("paper", "code")
    many = PAIRS // len(kinds)
    for kind in kinds:
        rankers = train_rankers(dataset, 2 * many, seed=11, rankers=kind)  # type: ignore[arg-type]
        for i in range(many):
            part = dataset.take(np.arange(QUERIES * i, QUERIES * (i + 1)) % dataset.n_queries)
            yield part, rankers.scores(part, 2 * i), rankers.scores(part, 2 * i + 1)


def known(pair: Pair, user: User, seed: int) -> dict[str, Beliefs]:
    """Beliefs in each state of knowledge; position bias is known."""
    found = {"nothing": Beliefs(pair.known_theta)}
    for per_query in (10, 100):
        trial = SimulatedTrial(METHOD, pair, user, pair.known_theta, seed + per_query)
        trial.next_version()
        n = per_query * pair.n_queries
        trial.show(0, n, np.array([n]))
        trial.next_version()
        found[f"lists, {n:,} impressions"] = replace(trial.beliefs, effects=None)
        found[f"{per_query} impressions a query"] = trial.beliefs
        found[f"{per_query}"] = trial  # type: ignore[assignment]
    return found


def measured(pair: Pair, user: User, seed: int) -> Found:
    mean = float(np.mean(pair.ctr(user)))
    plain = AB().moments(pair, user).variance
    model = AB(estimate="rank-aware", bias="known")
    found: Found = {("A/B, rank-aware", ""): (plain / planned_moments(model, pair, user).variance, 0.0)}
    found["team-draft", ""] = np.nan, TeamDraft().moments(pair, user).ctr / mean - 1
    states = known(pair, user, seed)
    trials = {name: states.pop(name) for name in ("10", "100")}
    after_100 = f"lists, {100 * pair.n_queries:,} impressions", "100 impressions a query"
    for state, beliefs in states.items():
        nothing = state == "nothing"
        prediction = expected_beliefs(pair, user).relevance if nothing else beliefs.prediction(*pair.ranks)

        def add(
            name: str, method: LogOpt, beliefs: Beliefs, prediction: object = prediction, state: str = state
        ) -> None:
            shown = method.policy(pair, beliefs)
            value = variance(pair, user, shown, zeta_hat=prediction, rank_aware=True)  # type: ignore[arg-type]
            found[name, state] = plain / value, shown.ctr(user) / mean - 1

        for floor in FLOORS:
            add(f"floor {floor:g}", replace(METHOD, relevance="constant", loss=None, keep=0, floor=floor), beliefs)
        trial = trials["100" if state in after_100 else "10"]
        for keep in (3, 0):
            for loss in LOSSES if keep else LOSSES[:1]:
                method = replace(METHOD, loss=loss, keep=keep)
                if not nothing:
                    price = method.price(trial.searches, beliefs)  # type: ignore[attr-defined]
                    beliefs = replace(beliefs, price=price)
                add(f"loss {loss:g}{'' if keep else ', keep 0'}", method, beliefs)
    return found


def summary(name: str, tables: list[Found]) -> list[Row]:
    rows: list[Row] = []
    for what, state in tables[0]:
        gains, clicks = np.array([table[what, state] for table in tables]).T
        floor = np.array([table.get(("floor 0.5", state), (np.nan, 0))[0] for table in tables])
        rows.append(
            {
                "data": name,
                "known": state,
                "design": what,
                "times fewer": round(float(gains.mean()), 2),
                "of floor 0.5": round(float((gains / floor).mean()), 2),
                "clicks": f"{clicks.mean():+.1%}",
                "worst pair": f"{clicks.min():+.1%}",
            }
        )
    return rows
