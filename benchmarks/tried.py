"""Attempts at more efficiency with the budget kept, and what each gains: exact variances and widths wherever there are any.

Worlds are those of ``benchmarks.visitors``. All but the schedule and the prices are exact given the designs of a trial.

* "limits": the least variance with everything known, and what is left of it with A/B traffic, a budget and less knowledge;
* "score": theta by the augmented score U_j = sum (c - theta_r m) u (1[r = j] - w_j), u = 1 / (1 - theta_r m),
  w_j = P_j theta_j u_j / sum P theta u, of mean 0 for any prediction m of relevance;
* "design": designs that count A/B traffic, and theta's own part g' H^-1 g, by Frank and Wolfe's steps from the closed form;
* "design in trials": the same, made anew at each point of the schedule;
* "split": other shares of the error probability among the A/B interval and the click model's;
* "price": prices of clicks from the true clicks, before any click and at all points of the schedule;
* "schedule": refits at 100, 300, 1,000, 3,000, ... instead of 100, 1,000, ...

* "groups": position bias fitted without each of 60 groups of units, instead of 20, for the widening of intervals.

``TRIED`` names those to make (all by default), ``TRIED_RUNS`` sets how many trials a row has, ``TRIED_TRAFFIC`` (part of a
name) the traffic of trials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize_scalar

from benchmarks.bound import efficiency_bound
from benchmarks.variance import variance
from benchmarks.verdicts import K, Row, Trial, World
from benchmarks.visitors import TRAFFIC, shop
from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.evidence import searches
from ranktrial.analysis.intervals import asymptotic_radius
from ranktrial.arrays import FloatArray, sum_by_group
from ranktrial.config import TrialConfig
from ranktrial.design.budget import ClickForecast, price_for
from ranktrial.design.closed_form import closed_form
from ranktrial.log import Log
from ranktrial.methods import AB, Beliefs, LogOpt, Method
from ranktrial.methods.beliefs import FIRST_LISTS, FIRST_PRICE, RELEVANCES
from ranktrial.methods.click_model import SEARCHES, expected_beliefs
from ranktrial.methods.logopt import LEAST_PRICE
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import User, position_based

RUNS = int(os.environ.get("TRIED_RUNS", "12"))
ONLY = os.environ.get("TRIED_TRAFFIC", "")
STEPS = 60  # of Frank and Wolfe
STEP = 1e-4  # of log theta, for derivatives
HALVES = 6  # of the interval in which a price is sought
QUERIES = 150  # of exact designs
PATHS = 4_000  # of two estimates over time
DENSE = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SHARES = ((0.8, 0.1), (0.9, 0.1), (0.95, 0.05), (0.8, 0.2), (0.67, 0.33), (0.5, 0.5))  # the click model's, A/B's


def run() -> list[Row]:
    rows: list[Row] = []
    for name in os.environ.get("TRIED", ",".join(TRIED)).split(","):
        for row in TRIED[name]():
            rows.append({"tried": name, **row})
            print(rows[-1], flush=True)
    return rows


def traffic() -> Iterator[tuple[str, World, int]]:
    for name, (kind, queries, impressions) in TRAFFIC.items():
        if ONLY in name:
            yield name, shop(kind, queries, impressions), impressions


# --- limits ---------------------------------------------------------------------------------------------------------------


def limits() -> Iterator[Row]:
    """Variance of one search with position bias known, by what is known of relevance, A/B share and budget."""
    for queries in (60, 1_000):
        world = shop("repeated", queries, 0)
        user, theta = world.reader, world.reader.slope
        pair = world.pair.knowing(theta=theta)
        known, clicks = expected_beliefs(pair, user), float(np.mean(pair.ctr(user)))
        lists = known.prediction(*pair.ranks)
        between = float(np.var(sum_by_group(pair.lam(theta) * user.zeta, pair.offsets)))
        yield {
            "where": f"{queries} queries, bound",
            "variance": efficiency_bound(pair, user.zeta, theta).value + between,
        }
        even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
        for name, prediction in (("lists", lists), ("documents", user.zeta)):
            ab = variance(pair, user, even, zeta_hat=prediction, rank_aware=True)
            yield {"where": f"{queries} queries, {name}, A/B test", "variance": ab, "against A/B": 1.0}
            for share in (0.5, 0.25, 0.1, 0.0):
                for loss in (0.0, None):
                    options: dict[str, Any] = {"keep": 3, "zeta0": known.relevance, "plain": (share / 2, share / 2)}
                    price = 0.0 if loss is None else _true_price(pair, user, theta, prediction, options)
                    shown = closed_form(pair, theta, zeta=prediction, price=price, **options)
                    found = variance(pair, user, shown, zeta_hat=prediction, rank_aware=True)
                    yield {
                        "where": f"{queries} queries, {name}, {share:.0%} A/B, loss {loss}",
                        "variance": found,
                        "against A/B": round(ab / found, 2),
                        "clicks": f"{shown.ctr(user) / clicks - 1:+.1%}",
                    }


def _true_price(
    pair: Pair,
    user: User,
    theta: FloatArray,
    prediction: FloatArray,
    options: dict[str, Any],
    often: FloatArray | None = None,
) -> float:
    """Price of no loss, by the true clicks on designs made from a prediction."""
    some = np.unique(np.linspace(0, pair.n_queries - 1, 2 * SEARCHES).astype(np.int64))
    if often is not None and pair.n_queries > len(some):  # the most frequent ones have most of the searches
        some = np.union1d(np.argsort(-often)[:SEARCHES], some)
    forecast = ClickForecast.of(
        pair.tables[:, some],
        theta,
        prediction,
        judged_by=(user.slope, user.zeta),
        **options,
    )
    if often is not None:
        forecast = replace(forecast, shares=often[some] / often[some].sum())
    return price_for(forecast, 0.0, least=LEAST_PRICE, most=FIRST_PRICE).price


# --- theta's own part, exactly ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exact:
    """Variance of an estimate of Delta given the designs of a log, over all rankings and clicks.

    Attributes:
        log: The designs, and how often each was drawn.
        zeta: True relevance of each slot.
        theta: True position bias.
        prediction: Relevance that searches are valued with.
    """

    log: Log
    zeta: FloatArray
    theta: FloatArray
    prediction: FloatArray

    @cached_property
    def often(self) -> FloatArray:
        return np.bincount(self.log.design, minlength=self.log.n_designs) / len(self.log)

    def _by_design(self, of_rows: FloatArray) -> FloatArray:
        """Expectation over the rankings of each design."""
        return sum_by_group(self.log.weights * of_rows, self.log.row_offsets)

    def _rows(self, clicks: FloatArray, base: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, given the ranking, of the sum of numbers for clicks and for shows of (slot, rank)."""
        shown, ranks = self.log.rankings, np.arange(self.log.k)
        there = shown >= 0
        weight, constant = (np.where(there, table[shown, ranks], 0.0) for table in (clicks, base))
        chance = self.theta * np.where(there, self.zeta[shown], 0.0)
        return (weight * chance + constant).sum(1), (weight**2 * chance * (1 - chance)).sum(1)

    def means(self, clicks: FloatArray, base: FloatArray) -> FloatArray:
        return self._by_design(self._rows(clicks, base)[0])

    def variance(self, clicks: FloatArray, base: FloatArray, first: FloatArray | float = 0.0) -> float:
        """Over designs, rankings and clicks; ``first`` is what each design adds."""
        mean, within = self._rows(clicks, base)
        inside, outside = self._by_design(mean), self._by_design(mean**2 + within)
        value = inside + first
        return float(self.often @ (outside - inside**2 + value**2) - (self.often @ value) ** 2)

    def x(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The rank-aware value of a search at a theta: for clicks, for shows, and of the design."""
        log, prediction = self.log, self.prediction[:, None]
        at = np.append(theta, 0.0)
        lam = at[np.minimum(log.rank_a, log.k)] - at[np.minimum(log.rank_b, log.k)]
        sure = 1 / (1 - theta * prediction)
        seen = (log.placement * theta * sure).sum(1)
        weight = lam[:, None] * sure / np.maximum(seen, 1e-300)[:, None]
        return weight, -weight * theta * prediction, sum_by_group(lam * self.prediction, log.slot_offsets)

    @cached_property
    def alone(self) -> float:
        """Variance with theta known."""
        return self.variance(*self.x(self.theta))

    @cached_property
    def slope(self) -> FloatArray:
        """Derivative of the mean of x in log theta."""

        def mean(error: FloatArray) -> float:
            clicks, base, first = self.x(self.theta * np.exp(error))
            return float(self.often @ (self.means(clicks, base) + first))

        return np.array([(mean(up) - mean(-up)) / (2 * STEP) for up in STEP * np.eye(self.log.k)])

    def with_theta(self, m: FloatArray, *, augmented: bool) -> tuple[float, float]:
        """Variance with theta from the same clicks by a score, and the largest mean that the score has in any design."""
        sure = 1 / (1 - self.theta * m[:, None]) if augmented else np.ones(self.log.placement.shape)
        seen = self.log.placement * self.theta * sure
        total = seen.sum(1)
        share = seen / np.maximum(total, 1e-300)[:, None]
        clicks = self.often[self.log.design_of_slot] * self.zeta * total
        information = np.diag(clicks @ share) - (share * clicks[:, None]).T @ share
        lever = np.append(0.0, np.linalg.solve(information[1:, 1:], self.slope[1:]))
        score = sure * (lever - (share @ lever)[:, None])
        expected = -score * self.theta * m[:, None] if augmented else np.zeros(score.shape)
        weight, base, first = self.x(self.theta)
        largest = float(np.abs(self.means(score, expected)).max())
        return self.variance(weight + score, base + expected, first), largest


def trial_of(world: World, method: Method, impressions: int, seed: int) -> tuple[Exact, float]:
    """The designs of a trial with relevance as it was learnt by its end, and the clicks gained against an A/B test."""
    config = TrialConfig.model_validate({"method": method, "k": K})
    trial = Trial(world, config, seed)
    (last,) = trial.looks((impressions,))
    log, theta, zeta = last.log, world.reader.slope, world.reader.zeta[trial.document]
    prediction = np.clip(searches(log).fit(theta).prediction, *RELEVANCES)[log.members.of_slot]
    of_lists = sum(log.list_exposures(theta)) / 2
    got, ab = (
        float(sum_by_group(zeta * rho, log.slot_offsets)[log.design].mean()) for rho in (log.exposure(theta), of_lists)
    )
    return Exact(log, zeta, theta, prediction), got / ab - 1


def scores() -> Iterator[Row]:
    """The conditional equation's score against the augmented one, with relevance as learnt and as it is."""
    for name, world, impressions in traffic():
        for method in (LogOpt(), AB(estimate="rank-aware")):
            exact, _ = trial_of(world, method, impressions, 0)
            before, _ = exact.with_theta(exact.prediction, augmented=False)
            for relevance, m in (("learnt", exact.prediction), ("true", exact.zeta)):
                after, largest = exact.with_theta(m, augmented=True)
                yield {
                    "where": f"{name}, {method}, relevance {relevance}",
                    "theta known": exact.alone,
                    "before": before,
                    "after": after,
                    "gain": f"{1 - after / before:.2%}",
                    "largest mean of the score": largest,
                }


# --- designs that count more -----------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Variance of one search, theta's own part of it, clicks, and what their derivatives need."""

    alone: float
    theta: float
    clicks: float
    lever: FloatArray
    seen: FloatArray
    share: FloatArray


@dataclass(frozen=True, eq=False)
class Problem:
    """Variance of a placement with the efficient estimates of Delta and of theta, as functions of the placement.

    V0 = sum zeta lambda^2 / S, S = sum_r P_r theta_r u_r; and g' H^-1 g with g = sum zeta (l - lambda w), l the derivative of
    lambda in log theta, H = sum zeta S (diag w - w w').
    """

    pair: Pair
    theta: FloatArray
    zeta: FloatArray
    often: FloatArray  # of each query

    @cached_property
    def of_document(self) -> FloatArray:
        """Share of the searches times relevance."""
        return np.repeat(self.often, np.diff(self.pair.offsets)) * self.zeta

    @cached_property
    def lists(self) -> FloatArray:
        """Placement of an A/B test."""
        return Mixture.of_tables([self.pair.top_a, self.pair.top_b], (0.5, 0.5), self.pair.n_documents).placement()

    @cached_property
    def lam(self) -> FloatArray:
        return self.pair.lam(self.theta)

    @cached_property
    def turn(self) -> FloatArray:
        """Derivative of lambda in log theta."""
        a, b = (
            Mixture.of_tables([table], (1.0,), self.pair.n_documents).placement()
            for table in (self.pair.top_a, self.pair.top_b)
        )
        return np.asarray((a - b) * self.theta)

    @cached_property
    def per_show(self) -> FloatArray:
        return np.asarray(self.theta / (1 - self.theta * self.zeta[:, None]))

    def parts(self, placement: FloatArray) -> Parts:
        shown = placement * self.per_show
        seen = np.maximum(shown.sum(1), 1e-12)
        share = shown / seen[:, None]
        slope = self.of_document @ (self.turn - self.lam[:, None] * share)
        information = np.diag(self.of_document @ shown) - (share * (self.of_document * seen)[:, None]).T @ share
        lever = np.append(0.0, np.linalg.solve(information[1:, 1:], slope[1:]))
        alone = float(self.of_document @ (self.lam**2 / seen))
        clicks = float(self.of_document @ (placement @ self.theta))
        return Parts(alone, float(slope @ lever), clicks, lever, seen, share)

    def stepwise(self, start: Mixture, ab: float, price: float, *, theta_part: bool) -> Mixture:
        """The design that makes V0 (with theta's part) less price times clicks least for all traffic, A/B included."""
        placement, count = start.placement(), float(theta_part)
        offsets, k, n = self.pair.offsets, self.pair.k, self.pair.n_queries
        tables, weights = [start.rankings], [start.weights]
        owners = [np.repeat(np.arange(n), np.diff(start.offsets))]

        def objective(own: FloatArray) -> float:
            found = self.parts(ab * self.lists + (1 - ab) * own)
            return found.alone + count * found.theta - price * found.clicks

        for _ in range(STEPS):
            now = self.parts(ab * self.lists + (1 - ab) * placement)
            lever = now.lever - (now.share @ now.lever)[:, None]
            weight = (self.lam / now.seen)[:, None]
            slope = -(weight**2 + count * (2 * weight * lever + lever**2)) * self.per_show - price * self.theta
            vertex, table = np.zeros(placement.shape), np.full((n, k), -1, np.int32)
            for query in range(n):
                first, end = offsets[query], offsets[query + 1]
                document, rank = linear_sum_assignment(slope[first:end] * self.zeta[first:end, None])
                vertex[first + document, rank] = 1
                table[query, rank] = first + document
            step = float(
                minimize_scalar(
                    lambda s, p=placement, v=vertex: objective((1 - s) * p + s * v),
                    bounds=(0, 0.5),
                    method="bounded",
                    options={"xatol": 1e-4},
                ).x
            )
            placement = (1 - step) * placement + step * vertex
            weights = [(1 - step) * weight for weight in weights]
            tables, weights, owners = [*tables, table], [*weights, np.full(n, step)], [*owners, np.arange(n)]
        rankings, chances, owner = np.concatenate(tables), np.concatenate(weights), np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=n)
        return Mixture(rankings[order], chances[order], np.append(0, np.cumsum(counts)), self.pair.n_documents)


def designs() -> Iterator[Row]:
    """Designs that count more against the closed form, no clicks lost, with relevance from lists or of documents."""
    for name, noise, pool in (("shop", (0.25, 0.3), 20), ("lists that hardly overlap", (3.0, 3.0), 60)):
        pair, user = _ranked(noise, pool)
        theta, often = user.slope, np.full(QUERIES, 1 / QUERIES)
        truth, known = Problem(pair, theta, user.zeta, often), expected_beliefs(pair, user)
        between, ab = float(np.var(sum_by_group(truth.lam * user.zeta, pair.offsets))), float(np.mean(pair.ctr(user)))
        lists = np.clip(known.prediction(*pair.ranks), *RELEVANCES)
        for state, prediction in (("lists", lists), ("documents", user.zeta)):
            for share in (0.5, 0.1):
                made = Problem(pair, theta, prediction, often)

                def told(shown: Mixture, share: float = share, truth: Problem = truth) -> Parts:
                    return truth.parts(share * truth.lists + (1 - share) * shown.placement())

                def enough(shown: Mixture, told: Callable[[Mixture], Parts] = told, ab: float = ab) -> bool:
                    return told(shown).clicks >= ab

                options: dict[str, Any] = {"zeta0": known.relevance}
                price = _true_price(pair, user, theta, prediction, {**options, "plain": (share / 2, share / 2)})
                before = closed_form(pair, theta, zeta=prediction, price=price, **options)
                first = told(before)
                row: Row = {
                    "where": f"{name}, {state}, {share:.0%} A/B",
                    "closed form": between + first.alone + first.theta,
                }
                row |= {"theta's part": first.theta, "clicks": f"{first.clicks / ab - 1:+.1%}"}
                for what, counts in (("counts A/B", False), ("and theta", True)):
                    found = told(_at_no_loss(made, before, share, counts, enough))
                    row[what] = between + found.alone + found.theta
                    row[f"clicks, {what}"] = f"{found.clicks / ab - 1:+.1%}"
                yield row


def _ranked(noise: tuple[float, float], pool: int) -> tuple[Pair, User]:
    """Rankers of ``visitors.shop``, with other noise and more documents to choose from."""
    random, theta = np.random.default_rng(1), shop("repeated", 1, 0).reader.slope
    relevance = 0.5 * random.choice([0.1, 0.3, 0.8], (QUERIES, pool), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + random.normal(0, one, relevance.shape))) for one in noise]
    numbers = [(ranked + pool * np.arange(QUERIES)[:, None]).tolist() for ranked in lists]
    pair = Pair.from_lists(numbers[0], numbers[1], k=K).knowing(theta=theta)
    return pair, position_based(relevance.ravel()[np.array(pair.ids)], theta)


def _at_no_loss(
    problem: Problem, start: Mixture, ab: float, theta_part: bool, enough: Callable[[Mixture], bool]
) -> Mixture:
    """The design at the lowest price that has enough clicks, or at the highest."""
    low, high = np.log(LEAST_PRICE), np.log(FIRST_PRICE)
    found = problem.stepwise(start, ab, LEAST_PRICE, theta_part=theta_part)
    if enough(found):
        return found
    best = problem.stepwise(start, ab, FIRST_PRICE, theta_part=theta_part)
    for _ in range(HALVES):
        middle = (low + high) / 2
        found = problem.stepwise(start, ab, float(np.exp(middle)), theta_part=theta_part)
        if enough(found):
            high, best = middle, found
        else:
            low = middle
    return best


def _often(world: World) -> FloatArray:
    n = world.pair.n_queries
    chances = 1 / (np.arange(n) // 2 + 1.0) if world.traffic == "Zipf" else np.ones(n)
    return np.asarray(chances / chances.sum())


def designs_in_trials() -> Iterator[Row]:
    closed = LogOpt.policy

    def policy(world: World, theta_part: bool) -> Callable[..., Mixture]:
        def made(method: LogOpt, pair: Pair, beliefs: Beliefs) -> Mixture:
            prediction, ab = np.clip(beliefs.prediction(*pair.ranks), *RELEVANCES), sum(method._shares(beliefs))
            problem = Problem(pair, beliefs.theta, prediction, _often(world))
            start = closed_form(
                pair, beliefs.theta, zeta=prediction, **{**method._options(beliefs), "plain": (0.0, 0.0)}
            )
            own = problem.stepwise(start, ab, beliefs.price / (1 - ab), theta_part=theta_part)  # of its own clicks
            n = pair.n_queries
            query = np.concatenate([np.repeat(np.arange(n), np.diff(own.offsets)), np.arange(n), np.arange(n)])
            order = np.argsort(query, kind="stable")  # A's own list and B's own are the last two of each
            tables = np.concatenate([own.rankings, pair.top_a, pair.top_b])[order]
            weights = np.concatenate([(1 - ab) * own.weights, np.full(2 * n, ab / 2)])[order]
            return Mixture(tables, weights, own.offsets + 2 * np.arange(n + 1), pair.n_documents, plain=True)

        return made

    for name, world, impressions in traffic():
        ways = (("closed form", closed), ("counts A/B", policy(world, False)), ("and theta", policy(world, True)))
        for what, way in ways:
            LogOpt.policy = way  # type: ignore[method-assign]
            found = []
            for seed in range(RUNS):
                exact, gain = trial_of(world, LogOpt(keep=0), impressions, seed)
                found.append((exact.alone, exact.with_theta(exact.prediction, augmented=False)[0], gain))
            yield {"where": f"{name}, {what}", **_means(("theta known", "variance", "clicks"), found)}
        LogOpt.policy = closed  # type: ignore[method-assign]


def _means(names: tuple[str, ...], found: Sequence[tuple[float, ...]]) -> Row:
    table = np.array(found)
    error = table.std(0, ddof=1) / np.sqrt(len(table)) if len(table) > 1 else np.full(len(names), np.nan)
    return {name: f"{mean:.4f} ({of:.4f})" for name, mean, of in zip(names, table.mean(0), error)}


# --- error probability, prices, schedules ----------------------------------------------------------------------------------


def splits() -> Iterator[Row]:
    """Squared widths by share, and times to a decision by whichever of two intervals leaves out 0 first.

    The A/B estimate has a variance of so many times the click model's, and differs from it by what is independent of it.
    """
    times = np.unique(np.geomspace(200, 200_000, 300).round())
    noise = np.random.default_rng(0).normal(size=(2, PATHS, len(times))) * np.sqrt(np.diff(np.append(0, times)))
    model, apart = np.cumsum(noise, axis=2) / times

    def radius(share: float) -> FloatArray:
        return asymptotic_radius(times, np.ones(len(times)), level=1 - 0.05 * share)

    def decided(ratio: float, of_model: float, of_ab: float) -> FloatArray:
        by_model = np.sqrt(1e-3) + model
        by_ab = by_model + np.sqrt(ratio - 1) * apart
        out = (np.abs(by_model) > radius(of_model)) | (np.abs(by_ab) > np.sqrt(ratio) * radius(of_ab))
        return np.asarray(np.where(out.any(1), times[out.argmax(1)], np.inf))

    for share in (1.0, 0.95, 0.9, 0.8, 0.5, 0.2, 0.1, 0.05):
        at = asymptotic_radius([20_000], [1.0], level=1 - 0.05 * share) / asymptotic_radius([20_000], [1.0], level=0.96)
        yield {"where": f"share {share:g}", "squared width against 0.8": f"{at[0] ** 2 - 1:+.1%}"}
    for ratio in (1.25, 2.0, 6.0):
        now = decided(ratio, *SHARES[0])
        for of_model, of_ab in SHARES:
            then = decided(ratio, of_model, of_ab)
            both = np.isfinite(now) & np.isfinite(then)
            longer = np.log(then[both] / now[both])
            yield {
                "where": f"click model {of_model:g}, A/B {of_ab:g}; A/B's variance {ratio:g} times",
                "searches to a decision": f"{np.exp(longer.mean()) - 1:+.1%} ({longer.std() / np.sqrt(both.sum()):.1%})",
            }


def prices() -> Iterator[Row]:
    closed = LogOpt.policy

    def policy(world: World, which: str, used: list[float]) -> Callable[..., Mixture]:
        def made(method: LogOpt, pair: Pair, beliefs: Beliefs) -> Mixture:
            options = method._options(beliefs)
            del options["price"]
            prediction = np.clip(beliefs.prediction(*pair.ranks), *RELEVANCES)
            best = _true_price(pair, world.reader, beliefs.theta, prediction, options, _often(world))
            used.append(beliefs.price)
            used.append(best)
            better = which == "all" or (which == "the first" and beliefs.lists is FIRST_LISTS)
            return closed(method, pair, replace(beliefs, price=best) if better else beliefs)

        return made

    for name, world, impressions in traffic():
        for which in ("none", "the first", "all"):
            used: list[float] = []
            LogOpt.policy = policy(world, which, used)  # type: ignore[method-assign]
            found = []
            for seed in range(RUNS):
                exact, gain = trial_of(world, LogOpt(), impressions, seed)
                found.append((exact.alone, gain))
            by_version = np.median(np.reshape(used, (RUNS, -1, 2)), axis=0).round(2)
            yield {
                "where": f"{name}, true price: {which}",
                **_means(("theta known", "clicks"), found),
                "prices": by_version[:, 0].tolist(),
                "true": by_version[:, 1].tolist(),
            }
        LogOpt.policy = closed  # type: ignore[method-assign]


def schedules() -> Iterator[Row]:
    for name, world, impressions in traffic():
        both = []
        for method in (LogOpt(), LogOpt(schedule=DENSE)):
            found = [trial_of(world, method, impressions, seed) for seed in range(RUNS)]
            both.append([(exact.with_theta(exact.prediction, augmented=False)[0], gain) for exact, gain in found])
        before, after = np.array(both)
        change = after[:, 0] / before[:, 0] - 1
        yield {
            "where": name,
            "variance": f"{change.mean():+.1%} ({change.std(ddof=1) / np.sqrt(RUNS):.1%})",
            "clicks": f"{before[:, 1].mean():+.1%}, then {after[:, 1].mean():+.1%}",
        }


def groups() -> Iterator[Row]:
    """Squared widening of the anytime interval by theta's error, from the same logs."""
    for name, world, impressions in traffic():
        for method in (LogOpt(), AB(estimate="rank-aware")):
            found = []
            for seed in range(RUNS):
                exact, _ = trial_of(world, method, impressions, seed)
                true = exact.with_theta(exact.prediction, augmented=False)[0] / exact.alone
                log = replace(exact.log, theta=None)
                fits = (fit_position_bias(log, groups=n) for n in (20, 60))
                found.append((*(estimate(log, theta=fit).inflation(0.96) ** 2 for fit in fits), true))
            yield {"where": f"{name}, {method}", **_means(("20 groups", "60 groups", "exact"), found)}


TRIED: dict[str, Callable[[], Iterator[Row]]] = {
    "limits": limits,
    "score": scores,
    "design": designs,
    "design in trials": designs_in_trials,
    "split": splits,
    "price": prices,
    "schedule": schedules,
    "groups": groups,
}
