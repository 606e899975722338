"""Segments: what one position bias for all costs where devices differ, false and true discoveries, and what it all takes.

100 queries with 20 candidates, A ranks them better than B, pages of 10, theta = rank^-0.7; phones show the first four results.
``SEGMENTS_PARTS`` (bias,wrong,null,power,decision,cost,noticed,learnt) says what is measured:

* bias: half of the searches on phones; queries asked mostly on phones and mostly on desktops, which like different documents.
  Bias of the answer for all and for each device, with one theta and with theta by device, and how often their 95 % intervals
  for a number of searches fixed beforehand hold the truth;
* wrong: a world in which, on phones, one theta for all has the wrong ranker ahead on average: what the report says of phones;
* null: 50 segments without any difference, looked at 50 times: trials with any discovery;
* power: a segment with a tenth of the searches that loses a tenth of its clicks, the others none: how often that is found;
* decision: searches to a decision of the same trials with and without six declared segments that mean nothing;
* cost: time and memory of the analysis of a long log without attributes, with 20 values of four, and with five metrics too;
* learnt: designs of each device by its own theta, with relevance and the price of clicks learnt from all searches or from its
  own: clicks gained over an A/B test, and the variance of a search's value;
* noticed: how often the check "visitors look alike" warns of phones that nobody declared, and falsely.

``SEGMENTS_TRIALS`` (200) is how many trials each number is from.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._timing import row
from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import Settled, settled
from ranktrial.analysis.discoveries import discoveries, log_evidence
from ranktrial.analysis.estimators import by_segment
from ranktrial.analysis.estimators.metric_values import metric_values
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.evidence import evidence
from ranktrial.analysis.guardrails.alike import together
from ranktrial.analysis.guardrails.status import WARN
from ranktrial.analysis.ladder import made_result
from ranktrial.analysis.segments import Subject, answers_by_segment
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.log.simulated import simulated_by_segment
from ranktrial.methods import LogOpt
from ranktrial.methods.beliefs import sound_theta
from ranktrial.metrics import Abandonment, Carts, FirstClickRank, Orders, Revenue
from ranktrial.rankings import Mixture, Pair
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.users import User, position_based, rank_decay, two_devices

TRIALS = int(os.environ.get("SEGMENTS_TRIALS", "200"))
PARTS = os.environ.get("SEGMENTS_PARTS", "bias,wrong,null,power,decision,cost,noticed,learnt").split(",")
LONG = int(os.environ.get("SEGMENTS_LONG", "1000000"))
K, QUERIES, CANDIDATES, VISIBLE = 10, 100, 20, 4
THETA = rank_decay(K, 0.7)
PHONE = np.where(np.arange(K) < VISIBLE, THETA, 0.0)
Row = dict[str, object]


def run() -> list[Row]:
    parts = {
        "bias": bias, "wrong": wrong, "null": null, "power": power, "decision": decision, "cost": cost, "noticed": noticed,
        "learnt": learnt,
    }  # fmt: skip
    return [one for name in PARTS for one in parts[name]()]


def lists(seed: int, noise: float = 0.6) -> tuple[Pair, FloatArray, np.random.Generator]:
    random = np.random.default_rng(seed)
    shape = (QUERIES, CANDIDATES)
    zeta = random.choice([0.05, 0.2, 0.6], shape, p=[0.6, 0.25, 0.15]) * random.uniform(0.3, 1.3, (QUERIES, 1))
    a, b = (np.argsort(-(zeta + random.normal(0, noise, shape)), 1) for noise in (0.3, noise))
    pair = Pair.from_lists(a.tolist(), b.tolist(), k=K)
    assert pair.ids is not None
    return pair, zeta[query_of(pair), np.array(pair.ids, np.int64)], random


def query_of(pair: Pair) -> IntArray:
    return np.repeat(np.arange(pair.n_queries), np.diff(pair.offsets))


def designed(pair: Pair, theta: FloatArray = THETA, holdback: float = 0.1) -> Mixture:
    policy = LogOpt(bias="known", relevance="constant", loss=None, holdback=holdback).policy(pair.knowing(theta=theta))
    assert isinstance(policy, Mixture)
    return policy


def gained(pair: Pair, user: User, theta: FloatArray) -> FloatArray:
    """Clicks per search of A over B, by query."""
    by_a, by_b = (np.append(theta, 0.0)[np.minimum(rank, K)] for rank in pair.ranks)
    return np.asarray(np.bincount(query_of(pair), (by_a - by_b) * user.zeta, pair.n_queries), np.float64)


def two(pair: Pair, users: dict[str, User], n: int, seed: int, asked: Mapping[str, IntArray] | None = None) -> Log:
    policy = designed(pair)
    return simulated_by_segment(
        pair, dict.fromkeys(users, policy), users, dict.fromkeys(users, n // 2), asked=asked, seed=seed
    )


def config_of(log: Log, **options: object) -> TrialConfig:
    declared = dict(log.attributes.attributes)
    return TrialConfig.model_validate({"method": "LogOpt()", "k": K, "segments": declared, **options})


def analysed(log: Log) -> Settled:
    config = config_of(log)
    return settled(analyse(log, config, config.first_beliefs), {})


# --- one theta for two devices -----------------------------------------------------------------------------------------------


def bias() -> Iterator[Row]:
    """Errors of answers in one world, over trials of 30,000 searches."""
    n, (pair, zeta, random) = 30_000, lists(1)
    users = two_devices(zeta, K, on_phones=random.permutation(zeta), visible=VISIBLE, eta=0.7)
    often = np.where(np.arange(QUERIES) % 2, 9.0, 1.0)  # half of the queries come mostly from phones
    chances = {"phone": often / often.sum(), "desktop": often[::-1] / often.sum()}
    thetas = {"phone": PHONE, "desktop": THETA}
    truth = {name: float(gained(pair, users[name], thetas[name]) @ chances[name]) for name in users}
    truth["all"] = (truth["phone"] + truth["desktop"]) / 2
    errors: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    differed = 0
    for trial in range(TRIALS):
        draw = np.random.default_rng(1_000 + trial)
        asked = {name: draw.choice(QUERIES, n // 2, p=chances[name]) for name in users}
        log = two(pair, users, n, trial, asked)
        fit = fit_position_bias(log)
        differed += fit.by_segment is not None
        for kind, theta in (("one theta", replace(fit, by_segment=None)), ("theta by device", fit)):
            found = estimate(log, theta=theta, cross_fit="past", uncovered="leave out", independent="cohorts")
            answers = {"all": found, **{value: of_value(log, found, value) for value in users}}
            for name, one in answers.items():
                errors.setdefault((kind, name), []).append(
                    (one.delta - truth[name], truth[name] in one.confidence_interval())
                )
    yield row("bias: trials in which devices differ", differed / TRIALS, "1", "share")
    for (kind, name), pairs in errors.items():
        off = np.array([one for one, _ in pairs])
        error = off.std(ddof=1) / np.sqrt(len(off))
        head = f"bias, {kind}, {name} (truth {truth[name]:+.4f})"
        yield row(f"{head}: mean error", float(off.mean()), "0", f"clicks, +- {2 * error:.4f}")
        yield row(f"{head}: root mean square", float(np.sqrt((off**2).mean())), "-", "clicks")
        yield row(
            f"{head}: intervals that hold the truth", float(np.mean([inside for _, inside in pairs])), "0.95", "share"
        )


def of_value(log: Log, found: Estimate, value: str) -> Estimate:
    """The estimate of one device, with the error that theta adds."""
    number = log.attributes.values("device").index(value)
    at = np.flatnonzero(log.levels("device") == number)
    assert found.replicates is not None
    group = log.group(len(found.replicates))[at]
    without = found.rests["device"][number] / (len(at) - np.bincount(group, minlength=len(found.replicates)))
    sums = log.cohorts.sums(found.x[at], at)
    groups = len(without)
    error = float(np.sqrt((groups - 1) / groups * ((without - without.mean()) ** 2).sum()))
    return Estimate.of(sums, found.weights, largest_weight=0.0, standard_error=error, replicates=without)


def deceiving() -> tuple[Pair, FloatArray]:
    """Lists and relevances, the same on both devices, with A ahead on phones, and B by the theta of both together.

    A document is relevant where that moves the one answer more than the other.
    """
    random, both = np.random.default_rng(1), (THETA + PHONE) / 2
    of_a, of_b = ([random.permutation(12)[:K].tolist() for _ in range(QUERIES)] for _ in range(2))
    pair = Pair.from_lists(of_a, of_b, k=K)
    policy = designed(pair)
    worth = [np.append(theta, 0.0)[np.minimum(rank, K)] for theta in (PHONE, both) for rank in pair.ranks]
    rho, seen = policy.exposure(both), policy.exposure(PHONE)
    true, thought = worth[0] - worth[1], np.divide((worth[2] - worth[3]) * seen, rho, out=0 * rho, where=rho > 0)
    worlds = [np.where(true > times * thought, 0.6, 0.05) for times in np.geomspace(0.5, 2, 60)]
    return pair, max(worlds, key=lambda zeta: min(float(true @ zeta), -float(thought @ zeta)))


def wrong() -> Iterator[Row]:
    n, (pair, zeta) = 40_000, deceiving()
    users = two_devices(zeta, K, visible=VISIBLE, eta=0.7)
    truth = -float(gained(pair, users["phone"], PHONE).mean())
    yield row("wrong: B against A on phones", truth, "-", "clicks per search")
    said = {kind: {"A": 0, "B": 0, "no": 0} for kind in ("one theta", "theta by device")}
    means: dict[str, list[float]] = {kind: [] for kind in said}
    for trial in range(TRIALS):
        log = two(pair, users, n, trial)
        for kind, differ in (("one theta", 0.0), ("theta by device", by_segment.DIFFER)):
            before, by_segment.DIFFER = by_segment.DIFFER, differ
            found = analysed(log)
            by_segment.DIFFER = before
            answers, _ = answers_by_segment(found.analysis, found.decision)
            phone = next((one for one in answers if one.value == "phone"), None)
            said[kind][(phone and phone.ahead) or "no"] += 1
            means[kind].append(float("nan") if phone is None else phone.difference)
    for kind, counts in said.items():
        yield row(f"wrong, {kind}: mean answer on phones", float(np.nanmean(means[kind])), f"{truth:+.4f}", "clicks")
        for name, count in counts.items():
            yield row(f"wrong, {kind}: {name} ahead on phones", count / TRIALS, "-", "of the trials")


# --- discoveries -------------------------------------------------------------------------------------------------------------


def values_by_segment(log: Log, x: FloatArray, looks: IntArray, tightest_at: float) -> Iterator[FloatArray]:
    """Logarithms of e-values of all segments at each look; x stay the same, by predictions from the past and a known theta."""
    for n in looks:
        yield np.array([
            log_evidence(Estimate.of(x[:n][level[:n] == value], np.empty(0), largest_weight=0.0), tightest_at=tightest_at)
            for name in log.attributes.names
            for level in [log.levels(name)]
            for value in range(1, len(log.attributes.values(name)))
        ])  # fmt: skip


def with_attributes(log: Log, values: tuple[int, ...], seed: int) -> Log:
    """The log with attributes that mean nothing."""
    random = np.random.default_rng(seed)
    declared = Segments.of({f"attribute {i}": [f"value {j}" for j in range(n)] for i, n in enumerate(values)})
    code, factor = np.zeros(len(log), np.int64), 1
    for _, of in declared.attributes:
        code += factor * random.integers(1, len(of) + 1, len(log))
        factor *= len(of) + 1
    return replace(log, attributes=declared, segment=code)


def null() -> Iterator[Row]:
    pair, _, _ = lists(1)
    policy, n = designed(pair), 20_000
    looks = np.unique(np.geomspace(400, n, 50).astype(int))
    user = position_based(np.full(pair.n_documents, 0.2), THETA)
    any_look, last = 0, 0
    for trial in range(TRIALS):
        log = Log.simulated(pair.knowing(theta=THETA), policy, user, n, seed=trial)
        log = with_attributes(log, (10,) * 5, trial)
        x = estimate(log, cross_fit="past", uncovered="leave out").x
        found = [bool(discoveries(e).any()) for e in values_by_segment(log, x, looks, 1_000)]
        any_look, last = any_look + any(found), last + found[-1]
    yield row("null: trials with a discovery at any of 50 looks, 50 segments", any_look / TRIALS, "<= 0.05", "share")
    yield row("null: with one at the last look", last / TRIALS, "<= 0.05", "share")


def power() -> Iterator[Row]:
    pair, zeta, _ = lists(1)
    policy, sizes = designed(pair), (10_000, 20_000, 40_000, 80_000, 160_000)
    neutral = position_based(np.full(pair.n_documents, float(zeta.mean())), THETA)
    low, high = 0.0, 1.0  # of the relevance that decides A's list
    for _ in range(30):
        share = (low + high) / 2
        user = position_based((1 - share) * zeta.mean() + share * zeta, THETA)
        loss = float(
            gained(pair, user, THETA).sum() / (np.append(THETA, 0.0)[np.minimum(pair.ranks[0], K)] @ user.zeta)
        )
        low, high = (share, high) if loss < 0.1 else (low, share)
    yield row("power: loss of B in the segment", loss, "0.1", "of A's clicks")
    trials, found, alone = max(TRIALS // 2, 1), dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0)
    users = {"loses": user, "other value": neutral}
    for trial in range(trials):
        n = sizes[-1]
        counts = {"loses": n // 10, "other value": n - n // 10}
        log = simulated_by_segment(pair, dict.fromkeys(users, policy), users, counts, seed=trial)
        log = replace(log, theta=THETA)
        x = estimate(log, cross_fit="past", uncovered="leave out").x
        level = log.levels("device") == 1  # values in order of their names
        others = np.random.default_rng(trial).integers(0, 18, n)
        for size in sizes:
            own, *rest = (
                log_evidence(Estimate.of(part, np.empty(0), largest_weight=0.0), tightest_at=1_000)
                for part in (
                    x[:size][level[:size]],
                    x[:size][~level[:size]],
                    *(x[:size][others[:size] == i] for i in range(18)),
                )
            )
            flags = discoveries([own, *rest])
            found[size] += bool(flags[0])
            alone[size] += bool(discoveries([own])[0])
    for size in sizes:
        yield row(
            f"power: found among 20 segments, {size:,} searches in all", found[size] / trials, "-", "of the trials"
        )
        yield row(f"power: found if it were the only one, {size:,}", alone[size] / trials, "-", "of the trials")


# --- what it takes ------------------------------------------------------------------------------------------------------------


def decision() -> Iterator[Row]:
    looks = np.unique((1_000 * 2 ** np.arange(0, 6.01, 0.25)).astype(int))
    needed: list[list[float]] = []
    for trial in range(max(TRIALS // 5, 1)):
        pair, zeta, _ = lists(trial, 0.4)
        log = Log.simulated(pair, designed(pair), position_based(zeta, THETA), int(looks[-1]), seed=trial)
        times = []
        for one in (log, with_attributes(log, (2, 2, 2), trial)):
            at = (n for n in looks if analysed(one.first(int(n))).decision.winner is not None)
            times.append(float(next(at, np.inf)))
        needed.append(times)
    plain, declared = np.array(needed).T
    both = np.isfinite(plain) & np.isfinite(declared)
    yield row("decision: trials that are decided without and with attributes", float(both.mean()), "-", "share")
    yield row("decision: mean searches without", float(plain[both].mean()), "-", "searches")
    yield row(
        "decision: with attributes, ratio of the means",
        float(declared[both].mean() / plain[both].mean()),
        "<= 1.05",
        "",
    )
    yield row("decision: trials decided at another look", float((plain != declared).mean()), "-", "share")


def cost() -> Iterator[Row]:
    pair, zeta, random = lists(1)
    plain = Log.simulated(pair, designed(pair), position_based(zeta, THETA), LONG, seed=1)
    orders = np.flatnonzero(plain.clicks[:, 0])[::20]
    events = LoggedEvents.of(
        orders, rank=np.zeros(len(orders)), action=np.zeros(len(orders)),
        amount=(random.gamma(2, 20, len(orders)) * 1_000_000).astype(np.int64), delay=np.full(len(orders), 1_000_000),
    )  # fmt: skip
    plain = replace(plain, events=events, actions=("order",))
    declared = with_attributes(plain, (5, 5, 5, 5), 1)
    for warm in (plain, declared):
        answers(analysed(warm.first(3_000)))
    for name, log, metrics in (("no attributes", plain, 0), ("20 values", declared, 0), ("and 5 metrics", declared, 5)):
        log = log.take(slice(None))
        start = time.process_time()
        found = analysed(log)
        between = time.process_time()
        answers(found, [subject for _, subject in zip(range(metrics), subjects(found.analysis, log))])
        end, most = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield row(f"cost, {name}: analysis of {LONG:,} searches", between - start, "-", "s")
        yield row(f"cost, {name}: answers by segment", end - between, "-", "s")
        yield row(f"cost, {name}: most memory so far", most, "-", "MB")


def answers(found: Settled, others: Sequence[Subject] = ()) -> None:
    """Answer by segment as a report does."""
    answers_by_segment(found.analysis, found.decision, others, above=found.rules.above)


def subjects(analysis: Analysis, log: Log) -> Iterator[Subject]:
    """Five metrics with their estimates."""
    every = Orders(window="7d"), Revenue(window="7d"), Carts(window="7d"), Abandonment(), FirstClickRank()
    for metric in every:
        values = metric_values(log, metric)
        options: dict[str, Any] = {"metric": values, "cross_fit": "past", "independent": "cohorts"}
        if values.of_results is None:
            found, name = estimate(log, estimator="adjusted", **options), "A/B"
        else:
            found = estimate(log, theta=analysis.fit, uncovered="leave out", **options)
            name = "position-based"
        result = made_result(name, found, "", clicks=1e9, level=0.95, share=1.0)
        yield Subject(values.log, result, values.each, metric=str(metric))


# --- devices that nobody declared ------------------------------------------------------------------------------------------


def noticed() -> Iterator[Row]:
    worlds: dict[str, Callable[[Pair, FloatArray], dict[str, User]]] = {
        f"phones show {visible} of 10, half of the searches": lambda _, zeta, v=visible: two_devices(  # type: ignore[misc]
            zeta, K, visible=v, eta=0.7
        )
        for visible in (4, 2, 6)
    }
    worlds["all alike"] = lambda _, zeta: {name: position_based(zeta, THETA) for name in "ab"}
    worlds["some click readily"] = lambda _, zeta: {
        name: position_based(np.clip(times * zeta, 0, 1), THETA) for name, times in (("a", 1.5), ("b", 0.5))
    }
    worlds["tastes that go with rank"] = of_two_tastes
    sizes, trials = (5_000, 10_000, 20_000, 40_000, 80_000), max(TRIALS // 4, 1)
    for name, users in worlds.items():
        warned = dict.fromkeys(sizes, 0)
        for trial in range(trials):
            pair, zeta, _ = lists(trial)
            log = two(pair, users(pair, zeta), sizes[-1], trial)
            for size in sizes:
                part = replace(log.first(size), attributes=NO_SEGMENTS, segment=np.empty(0, np.int64))
                warned[size] += together(part, fit_position_bias(part).bias.theta).p < WARN
        for size, count in warned.items():
            yield row(f"noticed, {name}: warns after {size:,} searches", count / trials, "-", "of the trials")


def of_two_tastes(pair: Pair, zeta: FloatArray) -> dict[str, User]:
    """Visitors who like what A ranks higher than B does, and others: tastes that go with rank, and are no devices."""
    of_a = np.minimum(pair.ranks[0], K) < np.minimum(pair.ranks[1], K)
    liked = (np.clip(np.where(of_a == (name == "a"), 1.8, 0.2) * zeta, 0, 1) for name in ("a", "b"))
    return {name: position_based(one, THETA) for name, one in zip("ab", liked)}


# --- designs by device -----------------------------------------------------------------------------------------------------


def learnt() -> Iterator[Row]:
    method, n = LogOpt(), 20_000
    first = TrialConfig.model_validate({"method": method, "k": K}).first_beliefs
    for tastes in ("the same", "other"):
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for world in range(max(TRIALS // 10, 1)):
            pair, zeta, random = lists(world)
            phones = None if tastes == "the same" else random.permutation(zeta)
            users = two_devices(zeta, K, on_phones=phones, visible=VISIBLE, eta=0.7)
            log = simulated_by_segment(
                pair, dict.fromkeys(users, method.policy(pair, first)), users, dict.fromkeys(users, n // 2), seed=world
            )
            of_all, fit = method.learn(evidence(log, impressions=n), first), fit_position_bias(log)
            for device, own in (("phone", PHONE), ("desktop", THETA)):
                value = log.attributes.values("device").index(device)
                theta = sound_theta(fit.bias.theta if fit.by_segment is None else fit.by_segment.thetas[value])
                part = log.take(log.levels("device") == value)
                of_device = method.learn(evidence(part, impressions=len(part)), first)
                for kind, beliefs in (("all searches", of_all), ("its own", of_device)):
                    policy = method.policy(pair, replace(beliefs, theta=theta))
                    ab = sum(np.append(own, 0.0)[np.minimum(rank, K)] @ users[device].zeta for rank in pair.ranks) / 2
                    seen = Log.simulated(pair, policy, users[device], 40_000, seed=world)
                    spread = estimate(seen, theta=np.maximum(own, 1e-9), cross_fit="past", uncovered="leave out")
                    found.setdefault((device, kind), []).append(
                        (
                            float(policy.exposure(own) @ users[device].zeta) / ab - 1,
                            spread.standard_error**2 * len(seen),
                        )
                    )
        for (device, kind), each in found.items():
            gain, variance = np.mean(each, axis=0)
            head = f"learnt, {tastes} tastes on both, {device}, from {kind}"
            yield row(f"{head}: clicks over an A/B test", 100 * float(gain), "-", "%")
            yield row(f"{head}: variance of a search's value", float(variance), "-", "clicks^2")
