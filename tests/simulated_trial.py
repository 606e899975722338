"""A small world with known truth, and users who click in it, for trials in process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.trial import Trial
from ranktrial.users import rank_decay


@dataclass(frozen=True)
class World:
    """Queries with documents of known relevance, two rankers, users who click by the position-based model."""

    zeta: dict[str, dict[str, float]]
    a: dict[str, list[str]]
    b: dict[str, list[str]]
    theta: FloatArray

    @classmethod
    def make(cls, *, queries: int = 40, documents: int = 14, k: int = 5, seed: int = 1, noise: float = 0.3) -> World:
        """A ranks by relevance with noise, B with twice as much."""
        random = np.random.default_rng(seed)
        zeta: dict[str, dict[str, float]] = {}
        a: dict[str, list[str]] = {}
        b: dict[str, list[str]] = {}
        for q in range(queries):
            relevance = random.choice([0.05, 0.2, 0.6], documents, p=[0.5, 0.3, 0.2])
            ids = [f"d{q}-{d}" for d in range(documents)]
            zeta[f"q{q}"] = dict(zip(ids, relevance.tolist()))
            for ranker, spread in ((a, noise), (b, 2 * noise)):
                order = np.argsort(-(relevance + random.normal(0, spread, documents)))
                ranker[f"q{q}"] = [ids[d] for d in order]
        return cls(zeta, a, b, rank_decay(k, 0.7))

    def ctr(self, lists: dict[str, list[str]]) -> float:
        per_query = [
            sum(t * self.zeta[q][d] for t, d in zip(self.theta, ranked, strict=False)) for q, ranked in lists.items()
        ]
        return float(np.mean(per_query))

    @property
    def delta(self) -> float:
        return self.ctr(self.a) - self.ctr(self.b)

    @classmethod
    def of_best_and_random(cls, *, queries: int = 8, seed: int = 1) -> World:
        """A has the most relevant documents, from the top; B any of them in any order."""
        world, random = cls.make(queries=queries, seed=seed), np.random.default_rng(seed)
        k = len(world.theta)
        a = {query: sorted(zeta, key=lambda d: -zeta[d])[:k] for query, zeta in world.zeta.items()}
        b = {query: random.permutation(list(zeta))[:k].tolist() for query, zeta in world.zeta.items()}
        return cls(world.zeta, a, b, world.theta)

    def run(
        self,
        trial: Trial,
        impressions: int,
        *,
        seed: int,
        start: int = 0,
        users: int | None = None,
        once: bool = False,
        compare: bool = False,
    ) -> None:
        """Users come, look, and click; those who click ``once`` leave afterwards.

        Those who ``compare`` look at all results, whatever the rank, and click among the two most relevant ones.
        """
        random = np.random.default_rng(seed)
        names = list(self.zeta)
        for i in range(start, start + impressions):
            query = names[random.integers(len(names))]
            unit = f"u{i}" if users is None else f"u{random.integers(users)}"
            shown = trial.rank(query, self.a[query], self.b[query], unit=unit, size=len(self.theta))
            luck = random.random(len(self.theta))
            zeta = self.zeta[query]
            best = sorted(shown.ranking, key=lambda d: -zeta[d])[:2]
            for theta, document, chance in zip(self.theta, shown.ranking, luck, strict=False):
                if chance < (zeta[document] * (document in best) if compare else theta * zeta[document]):
                    trial.click(shown.id, document, wait=False)
                    if once:
                        break
        trial.store.flush()


class Ticks:
    """A clock that moves on by a second, or another step, whenever it is read."""

    def __init__(self, step: float = 1.0, start: float = 1_700_000_000.0) -> None:
        self.now, self._step = start, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def minutes() -> Ticks:
    """A clock that moves on by a minute whenever it is read, from 2026-11-16 12:00 UTC on."""
    return Ticks(60.0, 1_794_830_400.0)
