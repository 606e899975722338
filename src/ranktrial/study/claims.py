"""Does what the paper says hold here? Each claim is a number measured on the results, the range in which the claim holds, and a
verdict that owns up to chance: with 50 pairs of rankers a binary error of 2 % is one pair.

A claim holds when the whole 95 % interval over pairs lies in its range, does not when the interval lies outside, and cannot be
told otherwise, nor from fewer than ten pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.study.curves import FEWEST, DataResults, LimitRow, Measured, Runs, bootstrap, common, needed_ratio, share
from ranktrial.study.labels import ROLES

SMALL_DELTA = 0.01  # the paper's "1 % CTR", in clicks per impression
BEATEN_FROM = 2000  # impressions from which the paper finds LogOpt below interleaving
ROOT_2 = 2**0.5
LOGOPT = {"known": ("published-known", "network-known"), "estimated": ("published-estimated", "network-estimated")}
PAPER_INTERLEAVING = ("team-draft", "probabilistic", "optimized")

HOLDS, FAILS, UNSURE = "holds", "does not hold", "cannot be told from {n} {unit}"
ROWS = (
    "LogOpt here does not read the wrong rows of features as the authors' code does, a suspected cause of their dip "
    "(the preset departures tries it)"
)


class NotTestedError(Exception):
    """The study lacks what a claim is about."""


@dataclass(frozen=True, eq=False)
class Claim:
    """Something the paper says.

    Attributes:
        number: Which of the paper's findings it belongs to.
        text: What is claimed.
        paper: The paper's number.
        measure: Our number, or NotTestedError.
        holds: From where to where our number bears the claim out.
        percent: Whether the number is a share.
        unit: What is counted in the number's interval.
        because: A known reason why ours may differ.
    """

    number: str
    text: str
    paper: str
    measure: Callable[[DataResults], Measured]
    holds: tuple[float, float]
    percent: bool = False
    unit: str = "pairs"
    because: str = ""


@dataclass(frozen=True)
class Finding:
    """What became of a claim on one data set."""

    number: str
    data: str
    claim: str
    paper: str
    ours: float | None
    low: float | None
    high: float | None
    pairs: int
    holds_if: str
    verdict: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def findings(results: Sequence[DataResults]) -> list[Finding]:
    """Every claim on every data set, claim by claim."""
    by_data = [[judge(claim, data) for claim in claims(data.data)] for data in results]
    return sorted((one for found in by_data for one in found), key=lambda one: one.number)


def judge(claim: Claim, data: DataResults) -> Finding:
    """The verdict on one claim."""
    try:
        found = claim.measure(data)
        if np.isnan(found.value):
            raise NotTestedError("the curves have no level of error in common")
    except NotTestedError as lacking:
        return _finding(claim, data, None, f"not tested: {lacking}")
    low, high = claim.holds
    enough = found.pairs >= FEWEST
    if enough and low <= found.low and found.high <= high:
        verdict = HOLDS
    elif enough and (found.high < low or found.low > high):
        verdict = f"differs because {claim.because}" if claim.because else FAILS
    else:
        unit = claim.unit if found.pairs != 1 else claim.unit.removesuffix("s")
        verdict = UNSURE.format(n=found.pairs, unit=unit)
    return _finding(claim, data, found, verdict)


def _finding(claim: Claim, data: DataResults, found: Measured | None, verdict: str) -> Finding:
    low, high = (_number(end, claim.percent) for end in claim.holds)
    unbounded = claim.holds[1] == (1 if claim.percent else np.inf)
    outside = {claim.holds[0] in (0, -np.inf): f"at most {high}", unbounded: f"at least {low}"}
    holds_if = outside.get(True, f"{low} to {high}")
    ours = found and (_finite(found.value), _finite(found.low), _finite(found.high))
    return Finding(
        claim.number,
        data.data,
        claim.text,
        claim.paper,
        *(ours or (None, None, None)),
        found.pairs if found else 0,
        holds_if,
        verdict,
        shown(found, claim.percent) if found else "",
    )


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def shown(found: Measured, percent: bool = False) -> str:
    """A number with its interval, as people read it.

    >>> shown(Measured(0.1, 0.0434, 0.214, 50), percent=True)
    '10.0 % (4.3 to 21.4)'
    """
    value, low, high = (_number(one, percent) for one in (found.value, found.low, found.high))
    if not np.isfinite(found.low) and not np.isfinite(found.high):
        return value
    return f"{value} ({low.removesuffix(' %')} to {high.removesuffix(' %')})"


def _number(value: float, percent: bool) -> str:
    if np.isnan(value):
        return "-"
    if np.isinf(value):
        return "never" if value > 0 else "-"
    return f"{100 * value:.1f} %" if percent else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


# --- the claims ---------------------------------------------------------------------------------------------------------------


def claims(data: str) -> Iterator[Claim]:
    """The paper's claims about a data set. Its MSLR claims where the name has mslr in it, its Yahoo claims elsewhere."""
    for part in PAPER_INTERLEAVING:
        yield from _interleaving(part)
    yield Claim(
        "1e",
        f"of the pairs that an interleaving method gets wrong, |Delta| < {SMALL_DELTA}",
        "most",
        _errors_at_small_delta,
        (0.5, 1),
        percent=True,
        unit="wrong pairs",
    )
    yield Claim(
        "1e*",
        f"of the pairs that an interleaving method gets wrong without noise, |Delta| < {SMALL_DELTA}",
        "most",
        _limits_at_small_delta,
        (0.5, 1),
        percent=True,
        unit="wrong pairs",
    )
    yield Claim(
        "2a", "A/B: absolute error keeps falling (slope in log-log)", "to 0", _slope("ab-means", "ab"), (-np.inf, -0.25)
    )
    for bias, parts in LOGOPT.items():
        yield from _logopt(bias, parts, mslr="mslr" in data.lower())


def _interleaving(part: str) -> Iterator[Claim]:
    name = ROLES[part][0]
    floor = (0.022, 1.0)
    yield Claim("1a", f"{name}: wrong preference at the end", ">= 2.2 %", _binary_at_end(part), floor, percent=True)
    yield Claim("1a*", f"{name}: wrong preference without noise", ">= 2.2 %", _wrong_limits(part), floor, percent=True)
    yield Claim(
        "1b",
        f"{name}: of the wrong preferences at 10^5, still wrong at the end",
        "100 %",
        _still_wrong(part),
        (0.9, 1.0),
        percent=True,
        unit="errors",
    )
    yield Claim("1c", f"{name}: absolute error at the end", "> 0.01", _absolute_at_end(part), (0.01, np.inf))
    yield Claim(
        "1c*",
        f"{name}: absolute error without noise, x rescaled as well as can be",
        "> 0.01",
        _rescaled_limits(part),
        (0.01, np.inf),
        because="most of the paper's absolute error is that x is on another scale than Delta",
    )
    yield Claim(
        "1d",
        f"{name}: absolute error stops falling (slope in log-log)",
        "0",
        _slope(part),
        (-0.25, np.inf),
    )


def _logopt(bias: str, parts: tuple[str, ...], *, mslr: bool) -> Iterator[Claim]:
    name = f"LogOpt, bias {bias}"
    yield Claim(
        "2a", f"{name}: absolute error keeps falling (slope in log-log)", "to 0", _slope(*parts), (-np.inf, -0.25)
    )
    yield Claim(
        "2b",
        f"{name}: absolute error below that of every interleaving method from so many impressions on",
        "about 2,000",
        _crossover(parts),
        (0, 4000),
    )
    # Where nearly all pairs are right, one pair that wavers decides when binary errors last cross: means do not depend on it.
    yield Claim(
        "2b",
        f"{name}: binary error less the least of interleaving's, mean from {BEATEN_FROM:,} impressions on",
        "below 0",
        _less_wrong(parts),
        (-np.inf, 0),
        percent=True,
    )
    # The paper's absolute errors of A/B are those of the difference in means, its squared errors those of x.
    half, expected = ((0.0, 1.1), "1 or less") if mslr else ((0.0, 1 / ROOT_2), "about 0.5")
    for other, form in (("ab-means", "difference in means"), ("ab", "the paper's x")):
        text = f"{name}: impressions for the same absolute error, by A/B's ({form})"
        yield Claim("3a", text, expected, _needed(parts, (other,)), half)
    yield Claim(
        "3b",
        f"{name}: squared error by that of A/B's x, at the end",
        "well below 1",
        _squared(parts, ("ab",)),
        (0, 0.8),
    )
    if mslr:
        for point, paper, holds in ((1e4, "about 2", (ROOT_2, np.inf)), (1e5, "below 1", (0.0, 1.0))):
            yield Claim(
                "3c",
                f"{name}: absolute error by A/B's (difference in means) at {point:,.0f} impressions",
                paper,
                _absolute_ratio(parts, ("ab-means",), point),
                holds,
                because=ROWS if point == 1e4 else "",
            )
    yield Claim(
        "4a", f"Uniform logging: impressions by those of {name}", "about 10", _needed(("uniform",), parts), (5, 20)
    )
    yield Claim(
        "4b",
        f"A/B logging: impressions by those of {name}",
        "about 2",
        _needed(("ab-logging",), parts),
        (ROOT_2, 2 * ROOT_2),
    )
    yield Claim("4c", f"{name}: impressions by the Oracle's", "near 1", _needed(parts, ("oracle",)), (0, 1.25))
    yield Claim(
        "4d", f"{name}: squared error by the Oracle's after 100 impressions", "near 1", _early_squared(parts), (0, 1.25)
    )


# --- what is measured ---------------------------------------------------------------------------------------------------------


def _played(data: DataResults, roles: Sequence[str]) -> Runs:
    found = data.playing(*roles)
    if found is None:
        raise NotTestedError(f"no {' or '.join(dict.fromkeys(ROLES[one][0] for one in roles))} in the study")
    return found


def _together(data: DataResults, *roles: Sequence[str]) -> list[Runs]:
    first, second = common(*(_played(data, one) for one in roles))
    if len(first.pairs) == 0:
        raise NotTestedError(f"no pair has results of both {first.method} and {second.method}")
    return [first, second]


def _long_enough(runs: Runs, impressions: float) -> None:
    if runs.impressions[-1] < impressions:
        raise NotTestedError(f"{runs.impressions[-1]:,} impressions, needs {impressions:,.0f}")


def _binary_at_end(part: str) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        runs = _played(data, [part])
        _long_enough(runs, 1e6)
        return share(runs.errors["binary_error"][:, -1])

    return measure


def _limits(data: DataResults, part: str) -> tuple[LimitRow, ...]:
    rows = data.limits_of(part)
    if not rows:
        raise NotTestedError("no limits.parquet with this method")
    return rows


def _wrong_limits(part: str) -> Callable[[DataResults], Measured]:
    """Pairs whose limit is too uncertain to have a sign count half, whatever sign it has."""
    return lambda data: share(np.array([wrong_weight(row) for row in _limits(data, part)]))


def wrong_weight(row: LimitRow) -> float:
    """1 for a wrong sign, 0 for a right one, 1/2 where 3 standard errors leave it open."""
    return 0.5 if row.limit != 0 and abs(row.limit) < 3 * row.standard_error else float(row.wrong_sign)


def best_scale(limits: FloatArray, deltas: FloatArray) -> float:
    """By what x is to be multiplied to come nearest to Delta (least squares through the origin)."""
    square = float(limits @ limits)
    return float(limits @ deltas) / square if square else 0.0


def _rescaled_limits(part: str) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        rows = _limits(data, part)
        if len(rows) < FEWEST:  # one scale for all: it would fit a few too well
            raise NotTestedError(f"limits of {len(rows)} pairs, needs {FEWEST}")
        limits, deltas = np.array([(row.limit, row.delta) for row in rows]).T
        errors = np.abs(deltas - best_scale(limits, deltas) * limits)
        return bootstrap(lambda mean: float(mean[0]), errors[:, None])

    return measure


def _still_wrong(part: str) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        runs = _played(data, [part])
        _long_enough(runs, 1e6)
        wrong = runs.errors["binary_error"]
        then = wrong[:, runs.nearest(1e5)] > 0
        if not then.any():
            raise NotTestedError("no wrong preference at 10^5")
        return share(wrong[then, -1])

    return measure


def _absolute_at_end(part: str) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        runs = _played(data, [part])
        _long_enough(runs, 1e6)
        return bootstrap(lambda curve: float(curve[-1]), runs.errors["absolute_error"])

    return measure


def _errors_at_small_delta(data: DataResults) -> Measured:
    every = [runs for part in PAPER_INTERLEAVING if (runs := data.playing(part)) is not None]
    if not every:
        raise NotTestedError("no interleaving method in the study")
    wrong: dict[int, float] = {}
    for runs in every:
        _long_enough(runs, 1e6)
        ends_wrong = runs.errors["binary_error"][:, -1] > 0
        wrong |= dict(zip(runs.pairs[ends_wrong].tolist(), runs.delta[ends_wrong].tolist()))
    return _small(wrong, "no wrong preference at the end")


def _limits_at_small_delta(data: DataResults) -> Measured:
    every = [row for part in PAPER_INTERLEAVING for row in data.limits_of(part)]
    if not every:
        raise NotTestedError("no limits.parquet with an interleaving method")
    return _small({row.pair: row.delta for row in every if wrong_weight(row) == 1}, "no wrong preference without noise")


def _small(wrong: dict[int, float], none: str) -> Measured:
    """The share of wrong pairs that differ little. Each counts once: methods that err on the same pair are no two witnesses."""
    if not wrong:
        raise NotTestedError(none)
    return share((np.abs(list(wrong.values())) < SMALL_DELTA).astype(float))


def _slope(*roles: str) -> Callable[[DataResults], Measured]:
    """Of the mean absolute error against impressions in log-log over the last two decades: -1/2 where only noise is left to
    fall, 0 where a systematic error is all there is."""

    def measure(data: DataResults) -> Measured:
        runs = _played(data, roles)
        _long_enough(runs, 1e5)
        late = runs.impressions >= runs.impressions[-1] / 100
        x = np.log(runs.impressions[late])
        return bootstrap(
            lambda curve: float(np.polyfit(x, np.log(curve), 1)[0]), runs.errors["absolute_error"][:, late]
        )

    return measure


def _with_interleaving(data: DataResults, roles: Sequence[str]) -> list[Runs]:
    """LogOpt and the interleaving methods of the study, on the pairs that all have."""
    logopt = _played(data, roles)
    others = [runs for part in PAPER_INTERLEAVING if (runs := data.playing(part)) is not None]
    if not others:
        raise NotTestedError("no interleaving method in the study")
    _long_enough(logopt, 1e4)
    pairs = logopt.pairs
    for other in others:
        pairs = np.intersect1d(pairs, other.pairs)
    if len(pairs) == 0:
        raise NotTestedError("no pair has results of LogOpt and every interleaving method")
    return [runs.on(pairs) for runs in (logopt, *others)]


def _crossover(roles: Sequence[str]) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        runs = _with_interleaving(data, roles)
        arrays = [one.errors["absolute_error"] for one in runs]
        return bootstrap(lambda mine, *rest: crossing(runs[0].impressions, mine, np.min(rest, axis=0)), *arrays)

    return measure


def _less_wrong(roles: Sequence[str]) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        runs = _with_interleaving(data, roles)
        late = runs[0].impressions >= BEATEN_FROM
        arrays = [one.errors["binary_error"][:, late].mean(1, keepdims=True) for one in runs]
        return bootstrap(lambda mine, *rest: float(mine[0] - np.min(rest)), *arrays)

    return measure


def crossing(impressions: IntArray, curve: FloatArray, other: FloatArray) -> float:
    """From how many impressions on a curve is never above the other; infinite if it ends above.

    >>> crossing(np.array([100, 200, 400, 800]), np.array([4.0, 2, 3, 1]), np.array([3.0, 3, 2, 2]))
    800.0
    """
    above = np.flatnonzero(curve > other)
    after = int(above[-1]) + 1 if len(above) else 0
    return float(impressions[after]) if after < len(impressions) else float("inf")


def _needed(roles: Sequence[str], baseline: Sequence[str]) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        method, other = _together(data, roles, baseline)
        return impressions_ratio(method, other, "absolute_error")

    return measure


def impressions_ratio(method: Runs, baseline: Runs, metric: str) -> Measured:
    """How many times the baseline's impressions a method needs for the same mean error, on pairs that both have."""
    mine, other = common(method, baseline)
    points = mine.impressions
    return bootstrap(lambda a, b: needed_ratio(points, a, b), mine.errors[metric], other.errors[metric])


def _ratio_at(
    roles: Sequence[str], baseline: Sequence[str], metric: str, place: Callable[[Runs], int]
) -> Callable[[DataResults], Measured]:
    def measure(data: DataResults) -> Measured:
        method, other = _together(data, roles, baseline)
        i = place(method)
        return bootstrap(lambda a, b: float(a[i] / b[i]), method.errors[metric], other.errors[metric])

    return measure


def _squared(roles: Sequence[str], baseline: Sequence[str]) -> Callable[[DataResults], Measured]:
    return _ratio_at(roles, baseline, "mean_squared_error", lambda runs: len(runs.impressions) - 1)


def _early_squared(roles: Sequence[str]) -> Callable[[DataResults], Measured]:
    return _ratio_at(roles, ("oracle",), "mean_squared_error", lambda runs: runs.nearest(100))


def _absolute_ratio(roles: Sequence[str], baseline: Sequence[str], point: float) -> Callable[[DataResults], Measured]:
    def place(runs: Runs) -> int:
        _long_enough(runs, point)
        return runs.nearest(point)

    return _ratio_at(roles, baseline, "absolute_error", place)
