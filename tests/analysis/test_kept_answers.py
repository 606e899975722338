"""Answers to four logs as version 0.2 and its successors gave them, before logs became arrays that are worked on in chunks.

``kept_answers.json`` has theta, and of each estimate the difference A - B, its standard error and both intervals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial import Log, estimate, fit_position_bias

KEPT = json.loads(Path(__file__).with_name("kept_answers.json").read_text(encoding="utf-8"))
K, POOL = 6, 12
THETA = np.arange(1, K + 1) ** -0.8
WORLDS = {  # queries, impressions, visitors, whether rankings are mixed
    "ab, shared": (40, 6_000, 6_000, False),
    "ab, visitors come back": (200, 8_000, 900, False),
    "mixtures, shared": (60, 8_000, 3_000, True),
    "mixtures, personal": (2_500, 2_500, 2_500, True),
}
PLAIN = "paper", "means", "adjusted"


def logs() -> Iterator[tuple[str, Log]]:
    rng = np.random.default_rng(5)
    for name, world in WORLDS.items():
        yield name, Log.from_records(records(rng, *world), K)


def records(rng: np.random.Generator, queries: int, n: int, units: int, mixed: bool) -> list[dict[str, Any]]:
    zeta = rng.uniform(0.05, 0.7, (queries, POOL))
    lists = [[rng.permutation(POOL)[:9] for _ in "ab"] for _ in range(queries)]
    designs: dict[int, Any] = {}
    found = []
    for i in range(n):
        q = int(rng.integers(queries)) if n != queries else i
        record: dict[str, Any] = {"query": f"q{q}", **{arm: named(q, ids) for arm, ids in zip("ab", lists[q])}}
        record |= {"unit": f"u{rng.integers(units)}" if units < n else f"u{i}", "time": 1.7e9 + i}
        if mixed:
            if q not in designs:
                designs[q] = mixture(rng, *lists[q])
            rows, weights = designs[q]
            row = rows[rng.choice(len(rows), p=weights)]
            record["rankings"] = [(named(q, r), float(p)) for r, p in zip(rows, weights)]
        else:
            row = lists[q][int(rng.integers(2))][:K]
        record["shown"] = named(q, row)
        record["clicked"] = named(q, [x for r, x in enumerate(row) if rng.random() < THETA[r] * zeta[q][x]])
        found.append(record)
    return found


def named(query: int, documents: Any) -> list[str]:
    return [f"d{query}-{document}" for document in documents]


def mixture(rng: np.random.Generator, a: Any, b: Any) -> tuple[list[tuple[int, ...]], Any]:
    """Three rankings with the next of either list at each rank, A's own and B's own."""
    rows: list[tuple[int, ...]] = []
    for _ in range(3):
        made: list[int] = []
        while len(made) < K:
            source = (a, b)[int(rng.integers(2))]
            made.append(next(x for x in source if x not in made))
        rows.append(tuple(made))
    rows = list(dict.fromkeys([*rows, tuple(a[:K]), tuple(b[:K])]))
    weights = rng.uniform(0.5, 1.5, len(rows))
    return rows, weights / weights.sum()


@pytest.mark.slow
def test_answers_are_what_they_were() -> None:
    for name, log in logs():
        fit = fit_position_bias(log)
        np.testing.assert_allclose(fit.bias.theta, KEPT[f"{name}|theta"], rtol=1e-9, err_msg=name)
        for key in (key for key in KEPT if key.startswith(f"{name}|") and not key.endswith("|theta")):
            _, estimator, by = key.split("|")
            theta = None if estimator in PLAIN else THETA if by == "given" else fit
            found = estimate(log, estimator=estimator, theta=theta, uncovered="leave out")
            numbers = [found.delta, found.standard_error, *found.confidence_interval(), *found.anytime_interval()]
            np.testing.assert_allclose(numbers, KEPT[key], rtol=1e-9, atol=1e-12, err_msg=key)
