"""The paper's claims, tested on a study's results: a number, the range in which the claim holds, and a verdict that owns up to
chance (with 50 pairs of rankers a binary error of 2 % is one pair).

A claim holds when the whole 95 % interval over pairs lies in its range, does not when the interval lies outside, and cannot be
told otherwise, nor from fewer than ten pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.methods import parse_method
from ranktrial.paper.study.curves import (
    FEWEST,
    Measured,
    bootstrap,
    crossing,
    error_slope,
    impressions_ratio,
    number_text,
    share,
)
from ranktrial.paper.study.labels import ROLES, role
from ranktrial.paper.study.results import DataResults, MethodLimits, Runs, common

SMALL_DELTA = 0.01  # the paper's "1 % CTR", in clicks per impression
BEATEN_FROM = 2000  # impressions from which the paper finds LogOpt below interleaving
ROOT_2 = 2**0.5
LEAST_ERRORS = 0.5  # expected wrong preferences of which something can be said
LOGOPT = {"known": ("published-known", "network-known"), "estimated": ("published-estimated", "network-estimated")}
PAPER_INTERLEAVING = ("team-draft", "probabilistic", "optimized")

HOLDS, FAILS, UNSURE, NOT_TESTED = "holds", "does not hold", "cannot be told from {n} {unit}", "not tested: "
SCALE = "most of the paper's absolute error is that x is on another scale than Delta"
ROWS = (
    "LogOpt here does not read the wrong rows of features as the authors' code does, a suspected cause of their dip "
    "(the preset departures tries it)"
)


class NotTestedError(Exception):
    """Raised where the study lacks what a claim is about."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim of the paper: a number that is measured and the range in which the claim holds.

    Attributes:
        number: Which of the paper's findings it belongs to.
        text: The claim in words.
        paper: The paper's number.
        measure: Our number, or NotTestedError.
        holds: Range in which our number bears the claim out.
        percent: Whether the number is a share.
        unit: Unit that the number's interval counts.
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
class ClaimResult:
    """The verdict on a claim on one data set, with the numbers behind it."""

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

    @property
    def lacking(self) -> str | None:
        """Data that the study lacks for a test of the claim; None if it was tested."""
        return self.verdict.removeprefix(NOT_TESTED) if self.verdict.startswith(NOT_TESTED) else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def findings(results: Sequence[DataResults]) -> list[ClaimResult]:
    """Every claim on every data set, claim by claim."""
    found = [judge(claim, data) for data in results for claim in (*claims(data.data), *wrong_rows(data))]
    return sorted(found, key=lambda one: one.number)


def judge(claim: Claim, data: DataResults) -> ClaimResult:
    """The verdict on one claim."""
    try:
        found = claim.measure(data)
        if np.isnan(found.value):
            raise NotTestedError("the curves have no level of error in common")
    except NotTestedError as lacking:
        return _finding(claim, data, None, f"{NOT_TESTED}{lacking}")
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


def _finding(claim: Claim, data: DataResults, found: Measured | None, verdict: str) -> ClaimResult:
    low, high = (number_text(end, percent=claim.percent) for end in claim.holds)
    unbounded = claim.holds[1] == (1 if claim.percent else np.inf)
    outside = {claim.holds[0] in (0, -np.inf): f"at most {high}", unbounded: f"at least {low}"}
    return ClaimResult(
        claim.number,
        data.data,
        claim.text,
        claim.paper,
        *(found.finite if found else (None, None, None)),
        found.pairs if found else 0,
        outside.get(True, f"{low} to {high}"),
        verdict,
        found.text(percent=claim.percent) if found else "",
    )


# --- the claims ---------------------------------------------------------------------------------------------------------------


def claims(data: str) -> Iterator[Claim]:
    """The paper's claims about a data set. Its MSLR claims where the name has mslr in it, its Yahoo claims elsewhere."""
    for part in PAPER_INTERLEAVING:
        yield from _interleaving(_about(ROLES[part][0], (part,)))
    wrong = "of the pairs that an interleaving method gets wrong"
    for number, noise, measure in (("1e", "", _small_wrong_runs), ("1e*", " without noise", _small_wrong_limits)):
        text = f"{wrong}{noise}, |Delta| < {SMALL_DELTA}"
        yield Claim(number, text, "most", measure, (0.5, 1.0), percent=True, unit="wrong pairs")
    falling = "absolute error keeps falling (slope in log-log)"
    yield _about("A/B", ("ab-means", "ab"))("2a", falling, "to 0", _slope, (-np.inf, -0.25))
    for bias, roles in LOGOPT.items():
        name = f"LogOpt, bias {bias}"
        logopt = _about(name, roles)
        yield logopt("2a", falling, "to 0", _slope, (-np.inf, -0.25))
        yield from _logopt(logopt, mslr="mslr" in data.lower())
        for number, other, label, paper, holds in (
            ("4a", "uniform", "Uniform logging", "about 10", (5.0, 20.0)),
            ("4b", "ab-logging", "A/B logging", "about 2", (ROOT_2, 2 * ROOT_2)),
        ):
            measure = partial(_needed, roles=(other,), baseline=roles)
            yield Claim(number, f"{label}: impressions by those of {name}", paper, measure, holds)


def wrong_rows(data: DataResults) -> Iterator[Claim]:
    """Claims on the effect of the wrong rows of features, where a study has a method with and without them."""
    for text in data.runs:
        method = parse_method(text) if role(text) else None
        if getattr(method, "authors_rows", False):
            other = str(replace(method, authors_rows=False))  # type: ignore[type-var]
            every = "all departures" if getattr(method, "true_lambda", False) else "as published"
            for point in (1e4, 1e5):
                claim = (
                    f"LogOpt, {every}: absolute error with the wrong rows by that without, at {point:,.0f} impressions"
                )
                measure = partial(_same_but, text, other, at=point)
                yield Claim("3d", claim, "suspected above 1", measure, (1.0, np.inf))


def _same_but(method: str, other: str, data: DataResults, at: float) -> Measured:
    if other not in data.runs:
        raise NotTestedError(f"no {other} in the study")
    return _ratio("absolute_error", at, *common(data.runs[method], data.runs[other]))


def _about(name: str, roles: Sequence[str]) -> Callable[..., Claim]:
    """Claims about the first method of a study that plays one of these roles."""

    def claim(
        number: str, text: str, paper: str, measure: Callable[..., Measured], *rest: Any, **options: Any
    ) -> Claim:
        return Claim(number, f"{name}: {text}", paper, partial(measure, roles=roles), *rest, **options)

    return claim


def _interleaving(claim: Callable[..., Claim]) -> Iterator[Claim]:
    yield claim("1a", "wrong preference at the end", ">= 2.2 %", _wrong_at_end, (0.022, 1.0), percent=True)
    yield claim("1a*", "wrong preference without noise", ">= 2.2 %", _wrong_limits, (0.022, 1.0), percent=True)
    text = "of the wrong preferences at 10^5, still wrong at the end"
    yield claim("1b", text, "100 %", _still_wrong, (0.9, 1.0), percent=True, unit="errors")
    yield claim("1c", "absolute error at the end", "> 0.01", _absolute_at_end, (0.01, np.inf))
    text = "absolute error without noise, x rescaled as well as can be"
    yield claim("1c*", text, "> 0.01", _rescaled_limits, (0.01, np.inf), because=SCALE)
    yield claim("1d", "absolute error stops falling (slope in log-log)", "0", _slope, (-0.25, np.inf))


def _logopt(claim: Callable[..., Claim], *, mslr: bool) -> Iterator[Claim]:
    text = "absolute error below that of every interleaving method from so many impressions on"
    yield claim("2b", text, "about 2,000", _crossover, (0, 4000))
    # Where nearly all pairs are right, one pair that wavers decides when binary errors last cross: means do not depend on it.
    text = f"binary error less the least of interleaving's, mean from {BEATEN_FROM:,} impressions on"
    yield claim("2b", text, "below 0", _less_wrong, (-np.inf, 0), percent=True)
    # The paper's absolute errors of A/B are those of the difference in means, its squared errors those of x.
    half, expected = ((0.0, 1.1), "1 or less") if mslr else ((0.0, 1 / ROOT_2), "about 0.5")
    for other, form in (("ab-means", "difference in means"), ("ab", "the paper's x")):
        text = f"impressions for the same absolute error, by A/B's ({form})"
        yield claim("3a", text, expected, partial(_needed, baseline=(other,)), half)
    by_ab, by_oracle = (partial(_error_ratio, "mean_squared_error", baseline=(one,)) for one in ("ab", "oracle"))
    yield claim("3b", "squared error by that of A/B's x, at the end", "well below 1", by_ab, (0, 0.8))
    if mslr:
        for point, paper, holds, why in ((1e4, "about 2", (ROOT_2, np.inf), ROWS), (1e5, "below 1", (0.0, 1.0), "")):
            text = f"absolute error by A/B's (difference in means) at {point:,.0f} impressions"
            measure = partial(_error_ratio, "absolute_error", baseline=("ab-means",), at=point)
            yield claim("3c", text, paper, measure, holds, because=why)
    yield claim("4c", "impressions by the Oracle's", "near 1", partial(_needed, baseline=("oracle",)), (0, 1.25))
    text = "squared error by the Oracle's after 100 impressions"
    yield claim("4d", text, "near 1", partial(by_oracle, at=100), (0, 1.25))


# --- what is measured ---------------------------------------------------------------------------------------------------------


def _run(data: DataResults, roles: Sequence[str], least: float = 0.0) -> Runs:
    """The method that plays one of these roles, if it has been run for at least so many impressions."""
    found = data.playing(*roles)
    if found is None:
        raise NotTestedError(f"no {' or '.join(dict.fromkeys(ROLES[one][0] for one in roles))} in the study")
    _long_enough(found, least)
    return found


def _long_enough(runs: Runs, impressions: float) -> None:
    if runs.impressions[-1] < impressions:
        raise NotTestedError(f"{runs.impressions[-1]:,} impressions, needs {impressions:,.0f}")


def _interleaving_runs(data: DataResults) -> list[Runs]:
    found = [runs for part in PAPER_INTERLEAVING if (runs := data.playing(part)) is not None]
    if not found:
        raise NotTestedError("no interleaving method in the study")
    return found


def _limits(data: DataResults, roles: Sequence[str]) -> MethodLimits:
    found = data.limits_of(*roles)
    if found is None:
        raise NotTestedError("no limits.parquet with this method")
    return found


def _last(curve: FloatArray) -> float:
    return float(curve[-1])


def _wrong_at_end(data: DataResults, roles: Sequence[str]) -> Measured:
    return share(_run(data, roles, 1e6).errors["binary_error"][:, -1])


def _absolute_at_end(data: DataResults, roles: Sequence[str]) -> Measured:
    return bootstrap(_last, _run(data, roles, 1e6).errors["absolute_error"])


def _still_wrong(data: DataResults, roles: Sequence[str]) -> Measured:
    runs = _run(data, roles, 1e6)
    wrong = runs.errors["binary_error"]
    then, now = wrong[:, [runs.nearest(1e5)]], wrong[:, [-1]]
    return _share_of(then * now, then, "no wrong preference at 10^5")


def _share_of(part: FloatArray, whole: FloatArray, none: str) -> Measured:
    """The ratio of two sums over pairs, columns of one number each, with its interval; it rests on the larger sum."""
    count = float(whole.sum())
    if count < LEAST_ERRORS:
        raise NotTestedError(none)
    if np.isin(whole, (0, 1)).all():  # counted, not expected: an interval for few
        return share((part / np.maximum(whole, 1))[whole == 1])
    found = bootstrap(lambda a, b: float(a[0] / b[0]) if b[0] else np.nan, part, whole)
    return Measured(found.value, found.low, found.high, round(count))


def _wrong_limits(data: DataResults, roles: Sequence[str]) -> Measured:
    return share(_limits(data, roles).wrong)


def _rescaled_limits(data: DataResults, roles: Sequence[str]) -> Measured:
    errors = _limits(data, roles).rescaled_error
    if len(errors) < FEWEST:  # one scale for all: it would fit a few too well
        raise NotTestedError(f"limits of {len(errors)} pairs, needs {FEWEST}")
    return bootstrap(_last, errors[:, None])


def _small_wrong_runs(data: DataResults) -> Measured:
    every = _interleaving_runs(data)
    for runs in every:
        _long_enough(runs, 1e6)
    return _small_among(
        [(runs, runs.errors["binary_error"][:, -1]) for runs in every], "no wrong preference at the end"
    )


def _small_wrong_limits(data: DataResults) -> Measured:
    every = [found for part in PAPER_INTERLEAVING if (found := data.limits_of(part)) is not None]
    if not every:
        raise NotTestedError("no limits.parquet with an interleaving method")
    return _small_among([(one, (one.wrong == 1).astype(float)) for one in every], "no wrong preference without noise")


def _small_among(every: Sequence[tuple[Runs | MethodLimits, FloatArray]], none: str) -> Measured:
    """The share of wrong pairs that differ little. Each counts once: methods that err on the same pair are no two witnesses."""
    wrong: dict[int, float] = {}
    size: dict[int, float] = {}
    for one, errs in every:
        for pair, delta, chance in zip(one.pairs.tolist(), np.abs(one.delta).tolist(), errs.tolist()):
            wrong[pair], size[pair] = max(chance, wrong.get(pair, 0.0)), delta
    chances, small = np.array(list(wrong.values())), np.array(list(size.values())) < SMALL_DELTA
    return _share_of((chances * small)[:, None], chances[:, None], none)


def _slope(data: DataResults, roles: Sequence[str]) -> Measured:
    return error_slope(_run(data, roles, 1e5))


def _with_interleaving(data: DataResults, roles: Sequence[str]) -> tuple[Runs, ...]:
    """LogOpt and the interleaving methods of the study, on the pairs that all have."""
    logopt = _run(data, roles)
    others = _interleaving_runs(data)
    _long_enough(logopt, 1e4)
    found = common(logopt, *others)
    if len(found[0].pairs) == 0:
        raise NotTestedError("no pair has results of LogOpt and every interleaving method")
    return found


def _crossover(data: DataResults, roles: Sequence[str]) -> Measured:
    runs = _with_interleaving(data, roles)
    arrays = [one.errors["absolute_error"] for one in runs]
    return bootstrap(lambda mine, *rest: crossing(runs[0].impressions, mine, np.min(rest, axis=0)), *arrays)


def _less_wrong(data: DataResults, roles: Sequence[str]) -> Measured:
    runs = _with_interleaving(data, roles)
    late = runs[0].impressions >= BEATEN_FROM
    arrays = [one.errors["binary_error"][:, late].mean(1, keepdims=True) for one in runs]
    return bootstrap(lambda mine, *rest: float(mine[0] - np.min(rest)), *arrays)


def _together(data: DataResults, *roles: Sequence[str]) -> tuple[Runs, ...]:
    found = common(*(_run(data, one) for one in roles))
    if len(found[0].pairs) == 0:
        raise NotTestedError(f"no pair has results of both {' and '.join(one.method for one in found)}")
    return found


def _needed(data: DataResults, roles: Sequence[str], baseline: Sequence[str]) -> Measured:
    method, other = _together(data, roles, baseline)
    return impressions_ratio(method, other, "absolute_error")


def _error_ratio(
    metric: str, data: DataResults, roles: Sequence[str], baseline: Sequence[str], at: float | None = None
) -> Measured:
    """The ratio of mean errors at a number of impressions, or at the end of the run."""
    return _ratio(metric, at, *_together(data, roles, baseline))


def _ratio(metric: str, at: float | None, method: Runs, other: Runs) -> Measured:
    if at is not None:
        _long_enough(method, at)
    i = len(method.impressions) - 1 if at is None else method.nearest(at)
    return bootstrap(lambda a, b: float(a[i] / b[i]), method.errors[metric], other.errors[metric])
