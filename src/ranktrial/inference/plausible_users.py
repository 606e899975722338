"""Users to plan with where no clicks have come: from the click rate alone, and plausible ones who tell documents apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray
from ranktrial.distributions import beta_quantile, find_root
from ranktrial.rankings import Pair, exposure_of
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User, position_based, rank_decay

ROUNDING = 1e-12
CHANCE = 0.5  # spread of the part of relevance that no ranker knows, relative to its mean
UNLIKE = 0.1  # how much rankers differ in how fast relevance falls with rank; see docs/planning.md
BEYOND = 0.25  # how much users differ in how relevant that is which a list lacks because it ends early; see there


@dataclass(frozen=True)
class ClickRate:
    """What is known of users where nothing is known of documents.

    Attributes:
        ctr: Clicks per impression.
        sd: Standard deviation of clicks per impression, if known: queries then differ in how much is clicked, which an A/B
            test pays for. Without it every query has the same rate.
    """

    ctr: float
    sd: float | None = None

    def __post_init__(self) -> None:
        checks.between("ctr", self.ctr, 0, np.inf, open_ends=True)
        if self.sd is not None:
            checks.between("sd", self.sd, 0, np.inf, open_ends=True)

    def user(self, pair: Pair, *, seed: Seed = 0) -> User:
        """Position-based users to whom all documents of a query are alike, with these clicks on the two lists."""
        theta = pair.known_theta
        shown = pair.tables != NO_DOCUMENT
        examined, squares = shown @ theta, (shown @ theta**2).mean()
        most = float(examined.mean())
        if self.ctr > most:
            raise ValueError(f"ctr is {self.ctr:g}, but only {most:.4g} results of a page are looked at on average")
        rate = self.ctr / most
        if self.sd is None:
            return position_based(np.full(pair.n_documents, rate), theta)
        # E[clicks^2] = rate E[examined] + E[rate_q^2] (E[examined^2] - E[sum theta^2])
        by_two = float((examined**2).mean() - squares)
        spread = (self.sd**2 + self.ctr**2 - self.ctr) / by_two - rate**2 if by_two > ROUNDING else -1.0
        if not 0 < spread < rate * (1 - rate):
            least = np.sqrt(self.ctr - rate**2 * squares)
            raise ValueError(
                f"sd is {self.sd:g}, which {self.ctr:g} clicks a page cannot have: with the same rate for every query it "
                f"is about {least:.4g}, and more where queries differ"
            )
        size = rate * (1 - rate) / spread - 1
        at = (generator(seed).permutation(pair.n_queries) + 0.5) / pair.n_queries
        rates = beta_quantile(at, rate * size, (1 - rate) * size)
        return position_based(np.repeat(rates, np.diff(pair.offsets)), theta)


def plausible_users(pair: Pair, user: User, delta: float, count: int, *, seed: Seed = 0) -> list[User]:
    """Users under whom one of the rankers, drawn at random, is better by exactly delta, and who click as often as ``user``.

    Relevance is partly chance and partly what the rankers believe: it falls with the rank in A and with the rank in B, at
    rates drawn for each user. A document that a list lacks because it ends before the page is full stands somewhere past its
    end, and how relevant such documents are differs from user to user: the longer list gets clicks on them that interleaving
    does not count, so that they decide whether it errs. How much more one ranker is right than the other is chosen such that
    Delta is +-delta. Users for whom neither ranker could be that much better are not drawn; fewer than ``count`` come back if
    most are such.
    """
    checks.whole("users", count, 1, 10_000)
    found: list[User] = []
    for child in children(seed, 3 * count):
        drawn = _plausible_user(pair, user, delta, child)
        if drawn is not None:
            found.append(drawn)
        if len(found) == count:
            break
    return found


def _plausible_user(pair: Pair, user: User, delta: float, seed: Seed) -> User | None:
    random = generator(seed)
    ctr = float(np.mean(pair.ctr(user)))
    weight, decay = random.uniform(0.2, 2, size=2)
    tables = (pair.top_a, pair.top_b)
    decays = [decay * random.lognormal(0, UNLIKE) for _ in tables]
    chance = random.gamma(1 / CHANCE**2, CHANCE**2, size=pair.n_documents)
    target = delta * random.choice([-1, 1])
    past, factor = random.uniform(), random.lognormal(0, BEYOND)
    ends = [_end_before(pair, table) for table in tables]
    beliefs = [
        weight * (exposure_of(table, rank_decay(pair.k, each), pair.n_documents) + past * end**-each)
        for table, each, end in zip(tables, decays, ends)
    ]
    base = user.zeta * np.where(np.isfinite(ends).any(0), factor, 1.0)

    def leaning(lean: float) -> User:
        relevance = base * (chance + (1 + lean) * beliefs[0] + (1 - lean) * beliefs[1])
        # Twice, because what is cut off at 1 changes the clicks a little.
        for _ in range(2):
            zeta = np.minimum(relevance, 1.0)
            relevance = zeta * ctr / np.mean(pair.ctr(position_based(zeta, user.slope)))
        return position_based(np.minimum(relevance, 1.0), user.slope)

    def missing(lean: float) -> float:
        return float(pair.delta(leaning(lean)) - target)

    if not missing(-1.0) < 0 < missing(1.0):
        return None
    return leaning(find_root(missing, -1.0, 1.0, rtol=1e-9))


def _end_before(pair: Pair, table: DocumentArray) -> FloatArray:
    """For each document that a list lacks though it ends before the page is full, the rank past its end; else infinity."""
    shown = table != NO_DOCUMENT
    lengths = shown.sum(1)
    ends = np.repeat(np.where(lengths < pair.k, lengths + 1.0, np.inf), np.diff(pair.offsets))
    ends[table[shown]] = np.inf
    return ends
