"""Errors of each estimator of position bias, and speed of EM.

Worlds: queries drawn uniformly, k = 10, theta = 1/r. "graded": 300 queries x 24 documents, zeta = 0.1 + 0.225 label,
documents ordered by a score of unit variance that correlates 0.5 with the label, plus noise. "sharp": 700 queries x
20 documents, zeta uniform and the score is zeta itself, plus noise. Run as ``python -m benchmarks.position_bias``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ranktrial.arrays import FloatArray, IntArray, Numbers
from ranktrial.paper.click_models.em import EM, em_step
from ranktrial.paper.click_models.regression_em import RegressionEM
from ranktrial.position_bias.auto import Auto
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable
from ranktrial.position_bias.model import Estimator

K = 10
THETA = 1 / np.arange(1, K + 1)
Row = dict[str, object]
Draw = Callable[[IntArray, np.random.Generator], FloatArray]


@dataclass(frozen=True)
class Scenario:
    """Relevances ``(queries, documents)`` and a way to draw scores; placement where the design is known."""

    name: str
    zeta: FloatArray
    features: FloatArray
    draw: Draw
    placement: FloatArray | None = None

    def log(self, impressions: int, rng: np.random.Generator, often: FloatArray | None = None) -> Counts:
        """``often`` is the share of each query; equal without it."""
        queries, n = self.zeta.shape
        query = rng.integers(0, queries, impressions) if often is None else rng.choice(queries, impressions, p=often)
        top = np.argsort(-self.draw(query, rng), 1)[:, :K]
        click = rng.random(top.shape) < THETA * self.zeta[query[:, None], top]
        offsets = np.arange(queries + 1) * n
        return Counts.from_impressions(
            query[:, None] * n + top, click, n_documents=queries * n, offsets=offsets, placement=self.placement
        )


def noisy(score: FloatArray, noise: float) -> Draw:
    return lambda query, rng: score[query] + noise * rng.normal(size=(len(query), score.shape[1]))


def either(a: FloatArray, b: FloatArray) -> Draw:
    return lambda query, rng: np.where(rng.random((len(query), 1)) < 0.5, a[query], b[query])


def placement_of(*scores: FloatArray) -> FloatArray:
    """Mean placement of fixed rankings by these scores, ``(documents, K)``."""
    queries, n = scores[0].shape
    placement = np.zeros((queries * n, K))
    for score in scores:
        top = np.argsort(-score, 1)[:, :K] + n * np.arange(queries)[:, None]
        placement[top, np.arange(K)] += 1 / len(scores)
    return placement


def graded(queries: int = 300, documents: int = 24, seed: int = 1) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Relevances, features, and the scores of two rankers."""
    rng = np.random.default_rng(seed)
    label = rng.choice(5, (queries, documents), p=[0.26, 0.36, 0.285, 0.075, 0.02])
    standard = (label - label.mean()) / label.std()
    scores = [0.5 * standard + np.sqrt(0.75) * rng.normal(size=label.shape) for _ in range(2)]
    signal = standard.ravel()[:, None] * np.array([1.0, 0.7, 0.4, 0.0]) + rng.normal(size=(label.size, 4))
    features = np.column_stack([np.ones(label.size), signal])
    return np.asarray(0.1 + 0.225 * label, np.float64), features, scores


def scenarios() -> list[Scenario]:
    zeta, features, (a, b) = graded()
    uniform = np.full((zeta.size, K), 1 / zeta.shape[1])
    rng = np.random.default_rng(2)
    sharp = rng.random((700, 20))
    logit = np.log(sharp / (1 - sharp)).ravel()[:, None] * np.array([1.0, 0.7, 0.4, 0.0])
    sharp_features = np.column_stack([np.ones(sharp.size), logit + rng.normal(size=(sharp.size, 4))])
    return [
        Scenario("graded, nearly fixed (noise 0.1)", zeta, features, noisy(a, 0.1)),
        Scenario("graded, medium (noise 0.5)", zeta, features, noisy(a, 0.5)),
        Scenario("graded, uniform shuffling, known", zeta, features, noisy(0 * a, 1.0), uniform),
        Scenario("graded, A/B of two rankers, known", zeta, features, either(a, b), placement_of(a, b)),
        Scenario("sharp, nearly fixed (noise 0.1)", sharp, sharp_features, noisy(sharp, 0.1)),
    ]


class Logistic:
    """A logistic regression, trained on batches of 512 documents drawn by display frequency."""

    def __init__(self, features: int) -> None:
        self.weights = np.zeros(features)

    def predict(self, features: Numbers) -> FloatArray:
        return np.asarray(1 / (1 + np.exp(-features @ self.weights)))

    def fit(self, features: Numbers, targets: FloatArray, weights: FloatArray, rng: np.random.Generator) -> None:
        cumulative = np.cumsum(weights)
        drawn = np.searchsorted(cumulative, rng.random((25, 512)) * cumulative[-1])
        for batch in drawn:
            x = features[batch]
            self.weights += 0.5 * x.T @ (targets[batch] - self.predict(x)) / len(batch)


def estimators(world: Scenario) -> dict[str, Estimator]:
    known = world.placement is not None
    return {
        "conditional": Conditional(),
        **({"conditional, design": Conditional(given="design")} if known else {}),
        "EM": EM(),
        "regression-EM": RegressionEM(Logistic(5), world.features),
        "auto": Auto(),
    }


def information_bound(world: Scenario, counts: Counts) -> float:
    """Root mean squared error of theta that no unbiased estimator given these shows and unknown zeta can beat."""
    p = THETA * world.zeta.ravel()[counts.documents, None]
    weight = counts.shown * p / np.maximum(1 - p, 1e-6)
    information = np.diag(weight.sum(0)) - (weight / np.maximum(weight.sum(1), 1e-300)[:, None]).T @ weight
    variance = np.diag(np.linalg.inv(information[1:, 1:])) * THETA[1:] ** 2
    return float(np.sqrt(variance.mean()))


def accuracy(logs: int = 40, sizes: Iterable[int] = (3_000, 10_000, 100_000)) -> list[Row]:
    """Root mean squared error of theta over ranks 2 to 10 and over logs; refusals are counted, not averaged."""
    rows: list[Row] = []
    for world in scenarios():
        for size in sizes:
            rng = np.random.default_rng(3)
            errors: dict[str, list[FloatArray]] = {}
            bounds = []
            repeats = logs if size < 100_000 else max(logs // 2, 1)
            for _ in range(repeats):
                counts = world.log(size, rng)
                bounds.append(information_bound(world, counts))
                for name, estimator in estimators(world).items():
                    errors.setdefault(name, [])
                    try:
                        errors[name].append((estimator.fit(counts).theta - THETA)[1:])
                    except NotIdentifiable:
                        continue
            rmse = {n: float(np.sqrt(np.mean(np.square(e)))) for n, e in errors.items() if len(e) == repeats}
            best = min(value for name, value in rmse.items() if name != "auto")
            rows.append(
                {
                    "table": "accuracy",
                    "world": world.name,
                    "impressions": size,
                    "bound": float(np.mean(bounds)),
                    **{name: rmse.get(name, f"refused {repeats - len(errors[name])}/{repeats}") for name in errors},
                    "auto / best": rmse["auto"] / best,
                }
            )
    return rows


def short_logs(logs: int = 60) -> list[Row]:
    """Estimate over truth for theta_2, theta_5, theta_10 when queries are rare: A/B of two rankers, 600 queries."""
    zeta, features, (a, b) = graded(queries=600)
    world = Scenario("A/B", zeta, features, either(a, b))
    rows: list[Row] = []
    for per_query in (3, 20):
        rng = np.random.default_rng(4)
        counts = [world.log(600 * per_query, rng) for _ in range(logs)]
        for name, estimator in (
            ("conditional", Conditional()),
            ("EM", EM()),
        ):
            found = []
            for c in counts:
                try:
                    found.append(estimator.fit(c).theta / THETA)
                except NotIdentifiable:
                    continue
            mean, spread = np.mean(found, 0), np.std(found, 0)
            row: Row = {"table": "short logs", "impressions per query": per_query, "method": name, "fits": len(found)}
            for r in (2, 5, 10):
                row[f"theta_{r} / true"] = f"{mean[r - 1]:.2f} (sd {spread[r - 1]:.2f})"
            rows.append(row)
    return rows


def few_queries(logs: int = 1000, queries: Iterable[int] = (2, 3, 5, 10, 20, 50)) -> list[Row]:
    """Coverage of 95 % intervals of theta_2 to theta_10, with queries drawn evenly or in proportion to 1/number.

    Every log has queries of its own, 200 impressions per query, noise 0.5. "normal": with 1.96 in place of t.
    """
    rows: list[Row] = []
    for n in queries:
        for head in (0.0, 1.0):
            often = 1 / np.arange(1, n + 1) ** head
            rng = np.random.default_rng(6)
            inside, normal, widths, freedom = [], [], [], []
            for seed in range(logs):
                zeta, features, (score, _) = graded(queries=n, seed=seed)
                world = Scenario("few queries", zeta, features, noisy(score, 0.5))
                try:
                    fit = Conditional().fit(world.log(200 * n, rng, often / often.sum()))
                except NotIdentifiable:
                    continue
                ends = np.array(fit.confidence_interval())[1:]
                inside.append(np.mean((ends[:, 0] <= THETA[1:]) & (THETA[1:] <= ends[:, 1])))
                # Unclicked ranks have no logarithm; their interval is not what is looked at here.
                seen = fit.theta[1:] > 0
                away = np.abs(np.log(fit.theta[1:][seen] / THETA[1:][seen]))
                normal.append(np.mean(away <= 1.96 * (fit.standard_error / fit.theta)[1:][seen]))
                widths.append(np.median(ends[:, 1] / np.maximum(fit.theta[1:], 1e-300)))
                freedom.append(np.median(np.asarray(fit.degrees_of_freedom)[1:]))
            rows.append(
                {
                    "table": "few queries",
                    "queries": n,
                    "drawn": "evenly" if head == 0 else "1/number",
                    "inside, %": f"{100 * np.mean(inside):.1f} +- {100 * np.std(inside) / np.sqrt(len(inside)):.1f}",
                    "normal, %": f"{100 * np.mean(normal):.1f}",
                    "degrees of freedom": float(np.median(freedom)),
                    "upper end / estimate": float(np.median(widths)),
                    "refused": logs - len(inside),
                }
            )
    return rows


def em_speed(sessions: Iterable[int] = (1_000_000, 10_000_000, 100_000_000)) -> list[Row]:
    """Sessions per second and sweep of EM on counts: 3,000 queries x 24 documents, medium noise, scaled to each log."""
    zeta, features, (a, _) = graded(queries=3000)
    world = Scenario("medium", zeta, features, noisy(a, 0.5))
    rng = np.random.default_rng(5)
    sample = world.log(600_000, rng)
    rows: list[Row] = []
    for n in sessions:
        shown = rng.poisson(sample.shown * n / 600_000).astype(np.float64)
        clicked = rng.binomial(shown.astype(np.int64), THETA * zeta.ravel()[sample.documents, None]).astype(np.float64)
        theta, relevance = THETA, np.full(len(shown), 0.3)
        times = []
        for _ in range(12):
            start = time.perf_counter()
            em_step(shown, clicked, theta, relevance)
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        fitted = EM().fit(Counts.from_dense(shown, clicked))
        whole = time.perf_counter() - start
        rows.append(
            {
                "table": "EM speed",
                "sessions": n,
                "cells": int(np.count_nonzero(shown)),
                "ms per sweep": 1e3 * float(np.median(times)),
                "M sessions/s": n / float(np.median(times)) / 1e6,
                "fit, s": whole,
                "steps": fitted.iterations,
                "largest error of theta": float(np.abs(fitted.theta - THETA).max()),
            }
        )
    return rows


def real_log(halves: int = 16) -> list[Row]:
    """Click rates at other ranks predicted on held-out queries of mailru_clicks, where that is at hand."""
    root = os.environ.get("RANKTRIAL_DATA") or Path(__file__).parents[1] / ".." / "shared" / "data"
    path = Path(root) / "mailru_clicks" / "mailru_clicks.tsv.gz"
    if not path.exists():
        return []
    table = np.loadtxt(path, skiprows=1, delimiter="\t")
    query, shown, clicked = table[:, 0].astype(np.int64), table[:, 5:15], table[:, 15:25]

    def counts(rows: np.ndarray) -> Counts:
        first = np.unique(query[rows], return_index=True)[1]
        return Counts.from_dense(shown[rows], clicked[rows], offsets=np.append(first, rows.sum()))

    methods: dict[str, Estimator] = {
        "EM": EM(),
        "conditional": Conditional(),
    }
    rng, queries = np.random.default_rng(0), np.unique(query)
    results: dict[tuple[int, int], list[list[float]]] = {}
    for _ in range(halves):
        fitted = np.isin(query, rng.permutation(queries)[: len(queries) // 2])
        thetas = [method.fit(counts(fitted)).theta for method in methods.values()]
        for i, j in ((1, 2), (1, 3), (3, 1), (3, 6), (5, 2)):
            both = ~fitted & (shown[:, i - 1] >= 20) & (shown[:, j - 1] >= 20)
            n, m = shown[both, i - 1], shown[both, j - 1]
            weight = np.minimum(n, m) / np.minimum(n, m).sum()
            before, after = weight @ (clicked[both, i - 1] / n), weight @ (clicked[both, j - 1] / m)
            predictions = [before * t[j - 1] / t[i - 1] for t in thetas]
            results.setdefault((i, j), []).append([both.sum(), after, before, *predictions])
    rows: list[Row] = []
    for (i, j), values in results.items():
        mean = np.mean(values, 0)
        spread = np.std(np.array(values)[:, 3] - np.array(values)[:, 1])
        row: Row = {"table": "mailru_clicks", "jump": f"{i} to {j}", "pairs": round(mean[0]), "actual": float(mean[1])}
        row |= {name: float(value) for name, value in zip(["naive", *methods], mean[2:])}
        rows.append(row | {"sd of EM's error over halves": float(spread)})
    return rows


def tables() -> list[Row]:
    """Every number, for reading."""
    return [*accuracy(), *short_logs(), *few_queries(), *em_speed(), *real_log()]


def run() -> list[Row]:
    """The numbers that were promised."""
    rows: list[Row] = []
    promised = {3_000: 0.024, 10_000: 0.011, 100_000: 0.0017}
    for row in accuracy():
        where = f"{row['world']}, {row['impressions']} impressions"
        rows.append(
            {"name": f"theta by auto, {where}", "measured": row["auto / best"], "target": 1.2, "unit": "x best"}
        )
        if row["world"] == "sharp, nearly fixed (noise 0.1)":
            target = promised[int(str(row["impressions"]))]
            measured = row["conditional"]
            rows.append(
                {"name": f"theta by conditional, {where}", "measured": measured, "target": target, "unit": "RMSE"}
            )
    for row in em_speed():
        name = f"EM, {row['sessions']} sessions"
        rows.append({"name": name, "measured": row["M sessions/s"], "target": 30.0, "unit": "M sessions/s per sweep"})
        error = row["largest error of theta"]
        rows.append({"name": f"{name}, largest error of theta", "measured": error, "target": 0.02, "unit": "theta"})
    return rows


def show(rows: list[Row]) -> str:
    """Markdown tables, one per kind of row and set of columns."""
    parts: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["table"], *row), []).append(row)
    lines: list[str] = []
    for (title, _, *columns), group in parts.items():
        lines += ["", f"### {title}", "", "| " + " | ".join(map(str, columns)) + " |", "|---" * len(columns) + "|"]
        for row in group:
            cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in (row[str(c)] for c in columns)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(show(tables()))
