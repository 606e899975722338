"""What does a log say about Delta? The policy-aware IPS estimate of logged impressions (the paper's Eq. ips).

Every impression keeps the exposure of the policy that showed it, so a log may hold many versions of a policy. The estimate
comes with what tells whether to trust it: its standard error, how many clicks it effectively rests on, the largest weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, IntArray
from ranktrial.methods.counterfactual import PROPENSITIES, observed_estimate
from ranktrial.rankings import LoggingPolicy, Pair, PlackettLuce, ips_weights
from ranktrial.users import Counts


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Impressions in the order they came.

    Attributes:
        rankings: Documents shown, ``(impressions, k)``, NO_DOCUMENT past the end of a short page.
        clicks: Which of them were clicked.
        versions: Which policy showed each impression, counted from 0.
    """

    rankings: DocumentArray
    clicks: BoolArray
    versions: IntArray

    @classmethod
    def of(cls, rankings: ArrayLike, clicks: ArrayLike, versions: ArrayLike | None = None) -> ClickLog:
        """Checked: shapes agree, nothing is clicked where nothing is shown."""
        given = np.asarray(rankings)
        if given.size and not np.issubdtype(given.dtype, np.integer):
            raise ValueError(f"rankings hold {given.dtype}, must hold document ids (whole numbers)")
        table, flags = given.astype(np.int32), np.asarray(clicks, bool)
        if table.ndim != 2 or table.shape != flags.shape:
            raise ValueError(f"rankings are {table.shape}, clicks {flags.shape}: must be the same (impressions, k)")
        hollow = np.argwhere(flags & (table == NO_DOCUMENT))
        if len(hollow):
            raise ValueError(f"impression {hollow[0][0]}: a click at rank {hollow[0][1] + 1}, where nothing was shown")
        strange = np.argwhere(table < NO_DOCUMENT)
        if len(strange):
            raise ValueError(f"impression {strange[0][0]}: document {table[tuple(strange[0])]}, must be at least -1")
        ordered = np.sort(table, axis=1)
        twice = np.argwhere((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_DOCUMENT))
        if len(twice):
            raise ValueError(f"impression {twice[0][0]}: document {ordered[twice[0][0], twice[0][1]]} is shown twice")
        which = np.zeros(len(table), np.int64) if versions is None else np.asarray(versions, np.int64)
        if which.shape != (len(table),):
            raise ValueError(f"{len(which)} versions for {len(table)} impressions, must be one each")
        return cls(table, flags, which)

    def __len__(self) -> int:
        return len(self.rankings)


@dataclass(frozen=True)
class Estimate:
    """An estimate of Delta, positive when A gets more clicks.

    Attributes:
        delta: The estimate, in clicks per impression.
        standard_error: Of the estimate, from the spread of single impressions; nan for observed propensities.
        impressions: How many it rests on.
        effective_clicks: (sum of click weights)^2 / sum of their squares: the number of equally weighted clicks that
            would say as much.
        largest_weight: Largest absolute weight any click can have.
        bias_bound: How far clipping can have moved it; 0 without clipping.
    """

    delta: float
    standard_error: float
    impressions: int
    effective_clicks: float
    largest_weight: float
    bias_bound: float

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """For a number of impressions fixed beforehand; looking again and again needs a confidence sequence."""
        checks.between("level", level, 0, 1, open_ends=True)
        reach = float(stats.norm.ppf(0.5 + level / 2)) * self.standard_error + self.bias_bound
        return self.delta - reach, self.delta + reach

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        low, high = self.confidence_interval()
        return (
            f"delta {self.delta:+.5f}  95% [{low:+.5f}, {high:+.5f}]  impressions {self.impressions:,}  "
            f"effective clicks {self.effective_clicks:,.0f}  largest weight {self.largest_weight:.3g}"
        )


def estimate_ips(
    log: ClickLog,
    pair: Pair,
    policies: Sequence[LoggingPolicy],
    *,
    clip: float | None = None,
    propensities: str = "policy",
) -> Estimate:
    """The IPS estimate of a log shown by ``policies`` (one per version), with the pair's position bias.

    Refuses with the query and document when a document on which the rankers differ could not be seen. ``clip`` caps weights
    and widens the interval by the bias that can cost; ``propensities="observed"`` is the authors' variant.
    """
    checks.one_of("propensities", propensities, PROPENSITIES)
    if clip is not None and propensities == "observed":
        raise ValueError("clip applies to weights from the policy, not to observed propensities")
    theta = pair.known_theta
    if len(log) == 0:
        raise ValueError("the log is empty")
    if log.rankings.shape[1] != pair.k:
        raise ValueError(f"the log shows {log.rankings.shape[1]} ranks, the pair k = {pair.k}")
    if log.versions.min() < 0 or log.versions.max() >= len(policies):
        raise ValueError(
            f"the log has versions {log.versions.min()} to {log.versions.max()}, but {len(policies)} policies"
        )
    if log.rankings.max() >= pair.n_documents:
        raise ValueError(f"the log shows document {log.rankings.max()}, the pair has {pair.n_documents}")
    queries = _queries_of(log, pair)
    for version, policy in enumerate(policies):
        if (policy.n_documents, policy.k) != (pair.n_documents, pair.k):
            raise ValueError(
                f"policy {version} shows {policy.k} of {policy.n_documents} documents, the pair {pair.k} of {pair.n_documents}"
            )
        if isinstance(policy, PlackettLuce) and not np.array_equal(policy.offsets, pair.offsets):
            raise ValueError(f"policy {version} divides the documents among queries otherwise than the pair")
    lam = pair.lam(theta)
    weights = [ips_weights(lam, policy.exposure(theta), pair.offsets, clip=clip) for policy in policies]
    per_click = click_weights(log, [w.values for w in weights])
    x = per_click.sum(1)
    mass = np.abs(per_click).sum()
    effective = float(mass**2 / max((per_click**2).sum(), 1e-300))
    largest = max(w.largest for w in weights)
    lost = np.stack([w.lost_by_query for w in weights])
    bound = float(lost[log.versions, queries].mean())  # with the log's own frequencies of queries
    if propensities == "observed":
        counts = Counts.from_impressions(log.rankings, log.clicks, n_documents=pair.n_documents)
        shown, clicked = np.zeros((2, pair.n_documents, pair.k))
        shown[counts.documents], clicked[counts.documents] = counts.shown, counts.clicked
        return Estimate(
            observed_estimate(pair, lam, theta, shown, clicked), float("nan"), len(log), effective, largest, 0.0
        )
    error = float(x.std(ddof=1) / np.sqrt(len(log))) if len(log) > 1 else float("nan")
    return Estimate(float(x.mean()), error, len(log), effective, largest, bound)


def _queries_of(log: ClickLog, pair: Pair) -> IntArray:
    """The query of each impression, from its documents, which must all belong to it."""
    first = log.rankings[:, 0]
    if np.any(first == NO_DOCUMENT):
        raise ValueError(f"impression {int(np.argmax(first == NO_DOCUMENT))} shows nothing")
    queries = np.searchsorted(pair.offsets, first, side="right") - 1
    inside = (log.rankings >= pair.offsets[queries][:, None]) & (log.rankings < pair.offsets[queries + 1][:, None])
    foreign = np.argwhere(~inside & (log.rankings != NO_DOCUMENT))
    if len(foreign):
        at, rank = foreign[0]
        raise ValueError(
            f"impression {at} of query {queries[at]} shows document {log.rankings[at, rank]} of another query"
        )
    return np.asarray(queries, np.int64)


def click_weights(log: ClickLog, values: Sequence[FloatArray]) -> NDArray[np.float64]:
    """What each click of the log is worth, ``(impressions, k)``; 0 where there was none. ``values`` are per version."""
    result = np.zeros(log.clicks.shape)
    for version, per_document in enumerate(values):
        mine = log.clicks & (log.versions == version)[:, None]
        result[mine] = per_document[log.rankings[mine]]
    return result
