"""Variance that better estimators take out of the same impressions.

Var(x) of one impression shown by the closed form, exact, mean of pairs of rankers trained as the paper says. Predictions of the
relevances come from a log of the given size, drawn from the same policy, that is not the one estimated from. Bias is that of
the "observed" estimate when every query was seen once, exact, the mean of |bias| and of |Delta| over pairs. The last line is
processor time.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.closed_form import good_pairs_of
from benchmarks.logopt import data_sets
from ranktrial.design.closed_form import closed_form
from ranktrial.methods import AB
from ranktrial.position_bias import Examinations, RelevanceFit
from ranktrial.rankings import Mixture, Pair, affine_values, rank_inputs, show_counts
from ranktrial.users import User

PAIRS = 4
IMPRESSIONS_PER_QUERY = (1, 10, 100)
IPS = "IPS"
Row = dict[str, object]


def run() -> list[Row]:
    rows: list[Row] = []
    for dataset in data_sets():
        pairs = good_pairs_of(dataset, PAIRS)
        tables = [variances(pair, user) for pair, user in pairs]
        for what in tables[0]:
            value = float(np.mean([table[what] for table in tables]))
            ratio = float(np.mean([table[what] / table[IPS] for table in tables]))
            rows.append({"data": dataset.name, "what": what, "value": value, "to IPS": ratio})
        biases = [(abs(observed_bias(pair, user)), abs(pair.delta(user))) for pair, user in pairs]
        for what, value in zip(("observed, every query seen once, |bias|", "|Delta|"), np.mean(biases, axis=0)):
            rows.append({"data": dataset.name, "what": what, "value": float(value)})
        rows.append(
            {"data": dataset.name, "what": "a prediction, seconds per 10^6 documents", "value": seconds(*pairs[0])}
        )
    return rows


def variances(pair: Pair, user: User) -> dict[str, float]:
    theta, designed = pair.known_theta, closed_form(pair, pair.known_theta)
    lam = pair.lam(theta)

    def variance(mixture: Mixture = designed, **options: object) -> float:
        affine = affine_values(mixture, lam, theta, pair.offsets, **options)  # type: ignore[arg-type]
        return mixture.moments(affine.values, user, affine.base).variance

    found = {
        "A/B, the paper's x": AB(estimate="paper").moments(pair, user).variance,
        "A/B, difference in means": AB().moments(pair, user).variance,
        IPS: variance(),
    }
    for size in IMPRESSIONS_PER_QUERY:
        seen = log_of(pair, user, designed, size)
        prediction = RelevanceFit.of(seen, pair.offsets, rank_inputs(*pair.ranks)).prediction
        after = f"prediction from {size} a query"
        found[f"one constant, {after}"] = variance(zeta_hat=seen.mean)
        found[f"rank-aware, one constant, {after}"] = variance(zeta_hat=seen.mean, rank_aware=True)
        found[f"doubly robust, {after}"] = variance(zeta_hat=prediction)
        found[f"rank-aware, {after}"] = variance(zeta_hat=prediction, rank_aware=True)
        found[f"rank-aware, P(q) known, {after}"] = variance(zeta_hat=prediction, rank_aware=True, known_queries=True)
        raw = np.divide(seen.clicks, seen.examined, out=np.full(len(prediction), seen.mean), where=seen.examined > 0)
        found[f"rank-aware, raw rates, {after}"] = variance(zeta_hat=np.clip(raw, 0, 1), rank_aware=True)
    ab = AB().displays(pair).mixture
    found["A/B logging, IPS"] = variance(ab)
    found["A/B logging, rank-aware, true zeta"] = variance(ab, zeta_hat=user.zeta, rank_aware=True)
    found["doubly robust, true zeta"] = variance(zeta_hat=user.zeta)
    found["rank-aware, true zeta"] = variance(zeta_hat=user.zeta, rank_aware=True)
    found["rank-aware, true zeta, P(q) known"] = variance(zeta_hat=user.zeta, rank_aware=True, known_queries=True)
    return found


def log_of(pair: Pair, user: User, mixture: Mixture, per_query: int) -> Examinations:
    shown, clicked = show_counts(mixture, user, per_query * pair.n_queries, seed=per_query)
    return Examinations.from_counts(shown, clicked, pair.known_theta)


def observed_bias(pair: Pair, user: User) -> float:
    """Inverse propensity scoring: a click counts lambda / theta of the rank at which the document stood."""
    theta, mixture = pair.known_theta, closed_form(pair, pair.known_theta)
    values = np.where(mixture.rankings >= 0, pair.lam(theta)[mixture.rankings] / theta, 0.0)
    return mixture.moments(values, user).mean - pair.delta(user)


def seconds(pair: Pair, user: User) -> float:
    seen, inputs = log_of(pair, user, closed_form(pair, pair.known_theta), 10), rank_inputs(*pair.ranks)
    start = time.process_time()
    RelevanceFit.of(seen, pair.offsets, inputs)
    return (time.process_time() - start) / pair.n_documents * 1e6
