"""The paper's Appendix A, computed exactly: cases where interleaving prefers the worse ranker.

Three documents A, B, C; ranker 1 shows A B C, ranker 2 shows B C A; B is never clicked. For each interleaving method there are
position biases and relevances under which its expected outcome has the wrong sign: no amount of data would mend that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ranktrial.methods.ab import AB
from ranktrial.methods.balanced import Balanced
from ranktrial.methods.base import Method
from ranktrial.methods.optimized import Optimized
from ranktrial.methods.probabilistic import Probabilistic
from ranktrial.methods.team_draft import TeamDraft
from ranktrial.rankings import Pair
from ranktrial.users import position_based

ROUNDING = 1e-12


@dataclass(frozen=True)
class ShownRanking:
    """One display of a case.

    Attributes:
        ranking: Document names from the top.
        probability: How often the method shows it (with these credits).
        credit: Credit of ranker A for a click at each rank (for a sign outcome: expected, between -1 and 1).
        added_by_a: For sign outcomes, the probability that a click at each rank counts for ranker A.
    """

    ranking: tuple[str, ...]
    probability: float
    credit: tuple[float, ...]
    added_by_a: tuple[float, ...] | None


@dataclass(frozen=True)
class Case:
    """One method on one small world, worked out exactly."""

    method: Method
    ranker_a: tuple[str, ...]
    ranker_b: tuple[str, ...]
    theta: tuple[float, ...]
    zeta: Mapping[str, float]
    delta: float
    expected_outcome: float
    displays: tuple[ShownRanking, ...]
    note: str = ""

    @property
    def wrong_sign(self) -> bool:
        """True if the method prefers the ranker that gets fewer clicks; differences of a rounding error are none."""
        return self.sees_difference and self.delta * self.expected_outcome < 0

    @property
    def has_difference(self) -> bool:
        """True if one ranker gets more clicks."""
        return abs(self.delta) > ROUNDING

    @property
    def sees_difference(self) -> bool:
        """True if there is a difference and the method's expected outcome is not zero."""
        return self.has_difference and abs(self.expected_outcome) > ROUNDING

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "method": str(self.method), "zeta": dict(self.zeta), "wrong_sign": self.wrong_sign}


def work_out(
    method: Method,
    ranker_a: Sequence[str],
    ranker_b: Sequence[str],
    theta: Sequence[float],
    zeta: Mapping[str, float],
    note: str = "",
) -> Case:
    """Compute exactly what a method does on one query. Only the top ``len(theta)`` ranks are shown."""
    pair = Pair.from_lists([ranker_a], [ranker_b], k=len(theta))
    names = pair.ids
    missing = [name for name in names if name not in zeta]
    if missing:
        raise ValueError(f"zeta has no value for document {missing[0]!r}; give one for each of {', '.join(names)}")
    unknown = [name for name in zeta if name not in names]
    if unknown:
        raise ValueError(f"zeta has a value for {unknown[0]!r}, which neither ranker lists")
    user = position_based([zeta[name] for name in names], theta)
    displays = method.displays(pair)
    shown = []
    for display in displays.of_query(0):
        ranking = tuple(names[d] for d in display.documents)
        shown.append(ShownRanking(ranking, display.probability, display.credits, display.added_by_a))
    return Case(
        method,
        tuple(ranker_a),
        tuple(ranker_b),
        tuple(map(float, theta)),
        {name: float(zeta[name]) for name in names},
        pair.delta(user),
        displays.moments(user).mean,
        tuple(sorted(shown, key=lambda display: display.ranking)),
        note,
    )


def appendix_a() -> list[Case]:
    """The paper's three examples, and the fourth that its third needs."""
    a, b = "ABC", "BCA"
    linear = Optimized(credit="linear")
    return [
        work_out(TeamDraft(), a, b, (1, 0.9, 0.8), {"A": 0.1, "B": 0, "C": 1}),
        work_out(
            Probabilistic(tau=4),
            a,
            b,
            (1, 0.9, 0.3),
            {"A": 0.5, "B": 0, "C": 1},
            note=(
                "Slip in the paper: the column it heads P(add(C)=1) holds the values of document B. Its ranking "
                "probabilities and its conclusion are right."
            ),
        ),
        work_out(
            linear,
            a,
            b,
            (1, 0.9, 0.9),
            {"A": 0.5, "B": 0, "C": 1},
            note=(
                "Slip in the paper: it prints this case as its counterexample, but the sign is right here. "
                "The sign turns wrong for zeta_A below 0.482, as in the next case."
            ),
        ),
        work_out(linear, a, b, (1, 0.9, 0.9), {"A": 0.45, "B": 0, "C": 1}),
    ]


def compared_methods() -> list[Method]:
    """Methods that a case of one's own is computed for: every interleaving method, and an A/B test beside them."""
    return [TeamDraft(), Probabilistic(), Optimized(credit="inverse"), Optimized(credit="linear"), Balanced(), AB()]
