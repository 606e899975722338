"""Estimates by metric: searches to the same error, coverage with heavy tails, and false discoveries over many metrics.

Five tables (``METRICS_TABLES`` names some of them):

* error: revenue after simulated orders (2 to 10 % of clicks, log-normal amounts) on two real data sets, by A/B's means, by the
  two-part split, and by decomposition with interleaving after Iizuka, Seki and Kato (arXiv 2306.10024), implemented simply: the
  page is a mixture of the interleaved rankings whose exposure has the least error, an item's value its mean per look at it.
* coverage: amounts resampled from real ones, windows of days, buyers of B's results slower than A's.
* design: the same orders and amounts, shown by designs for clicks and by designs for the metric, both told the truth.
* guards: harm found by a guard at the number of searches by which it should be, A/B traffic.
* discoveries: 20 metrics without any difference, watched at 50 looks, by e-BH.

``RANKTRIAL_DATA`` is the folder of the real data sets.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import numpy as np

from benchmarks import discrepancy
from benchmarks.discrepancy import THETA, Case, Row, natural, real_data
from benchmarks.purchases import Purchases
from ranktrial import estimate
from ranktrial.analysis.discoveries import RATE, discoveries
from ranktrial.analysis.intervals import asymptotic_radius, mixture_scale
from ranktrial.analysis.ladder import LEAST_CLICKS
from ranktrial.analysis.metrics import GUARDS_TIGHTEST
from ranktrial.analysis.power import anytime_impressions, tightest_for
from ranktrial.arrays import FloatArray, weighted_counts
from ranktrial.design.closed_form import closed_form
from ranktrial.distributions import normal_quantile
from ranktrial.log import Log
from ranktrial.methods import AB, LogOpt, Optimized
from ranktrial.metrics import Metric, Orders, Revenue
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import position_based

TABLES = os.environ.get("METRICS_TABLES", "error design coverage guards discoveries").split()
SEARCHES, GROUPS = 100_000, 20
DAY = 86_400
TRIALS, A_DAY, WINDOW = 200, 1_500, 7
DAYS = (8, 9, 10, 12, 14, 17, 21)  # looks
QUERIES = 40  # of the shop with slow buyers
METRICS, LOOKS, FAMILIES = 20, 50, 500
GUARDED, LOOKS_OF_GUARDS, GUARD_LEVEL = 1_000, 400, 0.99


def run() -> list[Row]:
    found: list[Row] = []
    for name, table in (
        ("error", error), ("design", designs), ("coverage", coverage), ("guards", guards),
        ("discoveries", false_discoveries),
    ):  # fmt: skip
        if name in TABLES:
            found += table()
            print(found[-1], file=sys.stderr, flush=True)
    return found


# --- searches to the same error -------------------------------------------------------------------------------------------


def error() -> list[Row]:
    discrepancy.PAIRS = 2
    rows: list[Row] = []
    for make in (discrepancy.mailru_longtail, discrepancy.mq2008):
        tables = [errors(case, number) for number, case in enumerate(natural(*make()))]
        for method in tables[0]:
            gains = [table["A/B, means"] / table[method] for table in tables]
            row: Row = {"table": "error", "data": make.__name__, "pairs": len(tables), "method": method}
            row["times fewer searches"] = f"{np.median(gains):.1f} ({min(gains):.1f} to {max(gains):.1f})"
            rows.append(row)
        print(make.__name__, file=sys.stderr, flush=True)
    return rows


def errors(case: Case, number: int) -> dict[str, float]:
    """Variance of one search of revenue by each method, position bias known."""
    random = np.random.default_rng(number)
    pair, n = case.pair.knowing(theta=THETA), case.pair.n_documents
    shop = Purchases(rate=random.uniform(0.02, 0.1, n), amount=random.lognormal(3, 0.5, n), spread=1.0)
    visitors = position_based(case.zeta, THETA)

    def log_of(policy: Mixture) -> Log:
        return shop.after(Log.simulated(pair, policy, visitors, SEARCHES, seed=number), seed=number)

    def variance(log: Log, estimator: str) -> float:
        return float(estimate(log, estimator=estimator, metric=Revenue()).standard_error ** 2 * SEARCHES)

    ab, designed = log_of(AB().policy(pair)), log_of(LogOpt().policy(pair))
    values = shop_values(shop, case.zeta)
    return {
        "A/B, means": variance(ab, "means"),
        "A/B, two parts": variance(ab, "rank-aware"),
        "LogOpt(), two parts": variance(designed, "rank-aware"),
        "decomposition with interleaving": decomposed(log_of(interleaved(pair, values)), pair),
    }


def shop_values(shop: Purchases, zeta: FloatArray) -> FloatArray:
    """Variance of what one look at each document brings."""
    rate, amount = np.asarray(shop.rate), np.asarray(shop.amount)
    mean = zeta * rate * amount
    return np.asarray(zeta * rate * amount**2 * np.exp(shop.spread**2) - mean**2)


def interleaved(pair: Pair, spread: FloatArray) -> Mixture:
    """Shares of interleaved rankings for which the error of the difference is least, given the variance of each item's value.

    The error is the sum of lambda_d^2 spread_d / exposure_d; multiplicative steps lead to its minimum, which is unique.
    """
    known = Optimized().displays(pair).mixture
    both = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
    sizes = np.diff(known.offsets)
    query = np.repeat(np.arange(pair.n_queries), sizes)
    rankings = np.concatenate([known.rankings, both.rankings])
    query = np.concatenate([query, np.repeat(np.arange(pair.n_queries), 2)])
    order = np.argsort(query, kind="stable")
    rankings, query = rankings[order], query[order]
    offsets = np.append(0, np.cumsum(np.bincount(query)))
    need = pair.lam(THETA) ** 2 * spread
    weights = 1 / np.diff(offsets)[query]
    flat = np.where(rankings >= 0, rankings, 0)
    looked = np.where(rankings >= 0, THETA, 0.0)
    for _ in range(300):
        exposure = weighted_counts(flat.ravel(), (weights[:, None] * looked).ravel(), pair.n_documents)
        gain = (need / np.maximum(exposure, 1e-9) ** 2)[flat] * looked
        weights *= np.sqrt(np.maximum(gain.sum(1), 1e-300))
        weights /= np.add.reduceat(weights, offsets[:-1])[query]
    return Mixture(rankings, weights, offsets, pair.n_documents)


def decomposed(log: Log, pair: Pair) -> float:
    """Variance of one search of the difference of sums of exposure x value per look, by a jackknife of 20 groups."""
    group = np.arange(len(log)) % GROUPS
    slots = log.rankings[log.row]
    shown = slots >= 0
    document = log.document[np.where(shown, slots, 0)]
    cells = document * GROUPS + group[:, None]
    size = len(log.documents) * GROUPS
    looks = weighted_counts(cells[shown], np.broadcast_to(THETA, shown.shape)[shown], size).reshape(-1, GROUPS)
    events = log.events
    of = cells[events.at, events.rank.astype(int)]
    value = weighted_counts(of, events.amount / 1e6, size).reshape(-1, GROUPS)
    numbers = {name: at for at, name in enumerate(pair.ids)}
    lam = pair.lam(THETA)[[numbers[name] for name in log.documents]]

    def difference(value: FloatArray, looks: FloatArray) -> float:
        return float((lam * np.divide(value, looks, out=np.zeros_like(value), where=looks > 0)).sum() / pair.n_queries)

    without = [difference(value.sum(1) - value[:, g], looks.sum(1) - looks[:, g]) for g in range(GROUPS)]
    return float((GROUPS - 1) / GROUPS * np.square(np.array(without) - np.mean(without)).sum() * len(log))


# --- design by the metric -------------------------------------------------------------------------------------------------


def designs() -> list[Row]:
    """Searches that a design by the metric needs, over those of a design by clicks: what it could gain at most."""
    discrepancy.PAIRS = 2
    rows: list[Row] = []
    for make in (discrepancy.mailru_longtail, discrepancy.mq2008):
        found = [designed(case, number) for number, case in enumerate(natural(*make()))]
        for name in found[0]:
            ratios = [one[name] for one in found]
            told = f"{np.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            rows.append(
                {"table": "design", "data": make.__name__, "pairs": len(found), "metric": name, "searches": told}
            )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def designed(case: Case, number: int) -> dict[str, float]:
    """Variance of a metric with a design by it, over that with one by clicks; relevance and values known to both."""
    random = np.random.default_rng(number)
    pair, n = case.pair.knowing(theta=THETA), case.pair.n_documents
    rate, amount = random.uniform(0.02, 0.1, n), random.lognormal(3, 0.5, n)
    shop = Purchases(rate=rate, amount=amount, spread=1.0)
    visitors = position_based(case.zeta, THETA)

    def variance(square: FloatArray, metric: Metric) -> float:
        """Variance of a design for noise in proportion to the mean square of the value of a look."""
        of_look = case.zeta * square
        shown = closed_form(pair, THETA, zeta=np.clip(of_look / of_look.max(), 1e-3, 1), keep=3, plain=(0.05, 0.05))
        log = shop.after(Log.simulated(pair, shown, visitors, SEARCHES, seed=number), seed=number)
        return float(estimate(log, estimator="rank-aware", metric=metric).standard_error ** 2)

    squares = {"orders": (rate, Orders()), "revenue": (rate * amount**2, Revenue())}
    return {name: variance(of, metric) / variance(np.ones(n), metric) for name, (of, metric) in squares.items()}


# --- guards ---------------------------------------------------------------------------------------------------------------


def guards() -> list[Row]:
    """Harm that a guard finds by the searches that are planned for it, with 80 % power; without a tolerance."""
    rows: list[Row] = []
    for what, rate in (("clicks", 1.0), ("orders", 0.05)):
        for harm in (0.0, 0.02, 0.05, 0.1, 0.2):
            lost, spread = harm * rate, 4 * rate * (1 - harm / 2)
            options = {"tightest_at": GUARDS_TIGHTEST, "level": GUARD_LEVEL}
            wanted = lost or 0.05 * rate

            def spreads(_: float, always: float = spread) -> float:
                return always

            by = anytime_impressions(spreads, wanted, **options)
            decided = anytime_impressions(spreads, wanted, tightest_at=tightest_for(spread, wanted))
            searches = np.ceil(np.arange(1, LOOKS_OF_GUARDS + 1) * by / LOOKS_OF_GUARDS)
            random = np.random.default_rng(1)
            each = np.diff(searches, prepend=0) / 2
            got = [random.poisson(each * mean, (GUARDED, len(each))).cumsum(1) for mean in (rate, rate - lost)]
            in_a, in_b = (one / (searches / 2) for one in got)
            sd = np.sqrt(2 * (in_a + in_b))
            reach = np.array([asymptotic_radius(searches, one, **options) for one in sd])
            sure = (in_b - in_a + reach < 0) & (got[1] + got[0] >= LEAST_CLICKS)
            rows.append(
                {
                    "table": "guards", "metric": what, "harm": f"{harm:.0%}", "trials": GUARDED, "planned": f"{by:,.0f}",
                    "found by half": f"{sure[:, : len(each) // 2].any(1).mean():.1%}",
                    "found": f"{sure.any(1).mean():.1%}",
                    "to decide by it": f"{decided:,.0f}",
                }
            )  # fmt: skip
    return rows


# --- coverage -------------------------------------------------------------------------------------------------------------


def amounts() -> FloatArray:
    """Real totals of invoices."""
    rows = np.loadtxt(real_data() / "order_amounts" / "orders.csv.gz", delimiter=",", skiprows=1, usecols=1)
    return np.asarray(rows[rows > 0])


def coverage() -> list[Row]:
    """B's first results sell more slowly: what counts early, what counts once it is mature, and how often intervals hold."""
    real = amounts()
    cap = float(np.quantile(real, 0.99))
    lists = [[*range(10 * query, 10 * query + 10)] for query in range(QUERIES)]
    pair = Pair.from_lists(lists, [one[::-1] for one in lists], k=5).knowing(theta=THETA[:5])
    query, place = np.divmod(np.array(pair.ids), 10)
    zeta = np.random.default_rng(5).uniform(0.1, 0.5, (QUERIES, 5))[query, np.minimum(place, 9 - place)]
    delay = np.where(place < 5, 0.5, 2.0) * DAY  # B's results are the last five
    shop = Purchases(rate=0.1, amount=real.mean(), amounts=real, delay=delay)
    visitors = position_based(zeta, THETA[:5])
    metric = Revenue(window=f"{WINDOW}d", cap=cap)
    worth = 0.1 * np.minimum(real, cap).mean() * (1 - np.exp(-WINDOW * DAY / delay))
    lam = pair.lam(THETA[:5])
    truth = float((lam * zeta * worth).sum() / pair.n_queries)
    wanted = {"A/B, means": (AB(), "means"), "LogOpt(), two parts": (LogOpt(), "rank-aware")}
    rows: list[Row] = []
    for name, (method, estimator) in wanted.items():
        policy = method.policy(pair)
        away = np.empty((TRIALS, len(DAYS), 3))
        early = np.empty((TRIALS, 2))
        for trial in range(TRIALS):
            log = Log.simulated(pair, policy, visitors, A_DAY * DAYS[-1], seed=trial)
            time = np.arange(len(log)) * (DAY * 1_000_000 // A_DAY)
            log = shop.after(replace(log, time=time), seed=trial)
            for at, day in enumerate(DAYS):
                some = replace(log.first(A_DAY * day), read_at=day * DAY * 1_000_000)
                found = estimate(some, estimator=estimator, metric=metric)
                anytime = found.anytime_interval(tightest_at=10_000)
                away[trial, at] = found.delta - truth, found.standard_error, truth in anytime
            first = log.first(A_DAY * 2)
            events = first.events
            there = events.where(time[events.at] + events.delay <= 2 * DAY * 1_000_000)
            now = estimate(replace(first, events=there, read_at=None), estimator=estimator, metric=metric)
            early[trial] = now.delta - truth, now.standard_error
        error = away[:, :, 0] / away[:, :, 1]
        rows.append(
            {
                "table": "coverage", "method": name, "trials": TRIALS, "truth": round(truth, 4),
                "share cut off": f"{1 - np.minimum(real, cap).sum() / real.sum():.0%}",
                "bias at the first look, standard errors": _mean(error[:, 0]),
                "bias at the end": _mean(error[:, -1]),
                "bias of day 2 without a window": _mean(early[:, 0] / early[:, 1]),
                "95 % at the end holds": f"{np.mean(np.abs(error[:, -1]) < normal_quantile(0.975)):.1%}",
                "anytime, all looks hold": f"{np.mean(away[:, :, 2].all(1)):.1%}",
            }
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _mean(of: FloatArray) -> str:
    """Mean with its standard error."""
    return f"{of.mean():+.2f} +- {of.std(ddof=1) / np.sqrt(len(of)):.2f}"


# --- false discoveries ----------------------------------------------------------------------------------------------------


def false_discoveries() -> list[Row]:
    """Families in which anything was ever called a discovery; each metric counts an action after the same clicks."""
    real = amounts()
    rows: list[Row] = []
    per_look, tightest_at = 1_000, 10_000
    for kind in ("counts", "amounts"):
        ever = at_end = plainly = 0
        for family in range(FAMILIES):
            random = np.random.default_rng(family)
            n = per_look * LOOKS
            clicks = random.binomial(5, 0.2, n)  # the same for A and B
            side = random.choice((-2.0, 2.0), n)  # A/B test, half each
            rates = random.uniform(0.02, 0.1, METRICS)
            happened = random.binomial(clicks[:, None], rates)
            worth = happened if kind == "counts" else happened * random.choice(real, happened.shape)
            x = side[:, None] * (worth - rates * (1.0 if kind == "counts" else real.mean()))  # a click a search
            sums, squares = (np.cumsum(of, axis=0)[per_look - 1 :: per_look] for of in (x, x**2))
            units = per_look * np.arange(1, LOOKS + 1)[:, None]
            mean, variance = sums / units, squares / units - (sums / units) ** 2
            grown = units * mixture_scale(0.95, tightest_at)
            log_e = grown * units * mean**2 / variance / (2 * (1 + grown)) - np.log1p(grown) / 2
            found = np.array([discoveries(one).any() for one in log_e])
            ever += bool(found.any())
            at_end += bool(found[-1])
            plainly += bool((np.abs(mean) > normal_quantile(0.975) * np.sqrt(variance / units)).any())
        rows.append(
            {
                "table": "discoveries", "what": kind, "families": FAMILIES, "metrics": METRICS, "looks": LOOKS,
                "any at any look": f"{ever / FAMILIES:.1%}", "any at the last look": f"{at_end / FAMILIES:.1%}",
                "by 95 % intervals": f"{plainly / FAMILIES:.0%}", "promised": f"{RATE:.0%}",
            }
        )  # fmt: skip
    return rows
