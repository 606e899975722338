"""Users to plan with where no clicks have come: from the click rate alone, and plausible ones who tell documents apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray
from ranktrial.distributions import beta_quantile, find_root
from ranktrial.rankings import Pair, exposure_of
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User, position_based, rank_decay

ROUNDING = 1e-12
TOLERANCE = 0.01  # of a standard deviation: people give two or three digits
SIZES = (0.02, 1e6)  # of a beta distribution: nearly all of it is at 0 and at 1, or in the middle
CHANCE = 0.5  # spread of the part of relevance that no ranker knows, relative to its mean
UNLIKE = 0.1  # how much rankers differ in how fast relevance falls with rank; see docs/research/planning.md
BEYOND = 0.25  # how much users differ in how relevant that is which a list lacks because it ends early; see there


@dataclass(frozen=True)
class ClickRate:
    """Clicks per page, where nothing is known of documents.

    Attributes:
        ctr: Clicks per impression.
        sd: Standard deviation of clicks per impression, if known. Queries that differ raise it, documents that differ within a
            page lower it. Without it all documents have the same relevance.
    """

    ctr: float
    sd: float | None = None

    def __post_init__(self) -> None:
        checks.between("ctr", self.ctr, 0, np.inf, open_ends=True)
        if self.sd is not None:
            checks.between("sd", self.sd, 0, np.inf, open_ends=True)

    def user(self, pair: Pair, *, seed: Seed = 0) -> User:
        """Position-based users with these clicks on the two lists, or with the nearest standard deviation there is (``note``).

        Above the standard deviation of equal documents every query has a rate of its own, from a beta distribution. Below it
        the documents that the two lists show to most people are the relevant ones.

        >>> pair = Pair.from_lists([["x", "y", "z"]], [["y", "x", "z"]], k=3).knowing(theta=[1, 0.5, 0.3])
        >>> ClickRate(0.6, 0.65).user(pair).zeta.round(3)
        array([0.375, 0.375, 0.123])
        """
        theta = pair.known_theta
        shown = pair.tables != NO_DOCUMENT
        examined = (shown @ theta).mean(0)
        most = float(examined.mean())
        if self.ctr > most:
            raise ValueError(f"ctr is {self.ctr:g}, but only {most:.4g} results of a page are looked at on average")
        rate = self.ctr / most
        alike = np.full(pair.n_documents, rate)
        if self.sd is None:
            return position_based(alike, theta)
        self._check_sd(int(shown.sum(-1).max()))
        if rate > 1 - ROUNDING:  # whatever is looked at is clicked: there is nothing to choose
            return position_based(alike, theta)
        if self.sd**2 < _click_variance(pair, alike):
            directions = iter([_most_seen(pair, rate * examined) - rate])
        else:
            directions = self._rates_apart(pair, examined, rate, seed)
        for apart in directions:
            found = alike + _step(pair, alike, apart, self.sd**2) * apart
            if _click_variance(pair, found) >= self.sd**2 * (1 - ROUNDING):
                break
        return position_based(np.clip(found, 0, 1), theta)

    def _check_sd(self, page: int) -> None:
        """Refuse what no number of clicks between 0 and the length of a page can have."""
        assert self.sd is not None
        over = self.ctr - np.floor(self.ctr)
        least, most = np.sqrt(over * (1 - over)), np.sqrt(self.ctr * max(page - self.ctr, 0))
        if not least * (1 - TOLERANCE) <= self.sd <= most * (1 + TOLERANCE):
            raise ValueError(
                f"sd is {self.sd:g}, which {self.ctr:g} clicks a page cannot have: whole numbers of clicks on pages of "
                f"{page} with that mean have a standard deviation of {least:.4g} to {most:.4g}"
            )

    def _rates_apart(self, pair: Pair, examined: FloatArray, rate: float, seed: Seed) -> Iterator[FloatArray]:
        """Deviation of each document's query from the mean rate: quantiles of a beta distribution, then of wider ones.

        Few queries, or queries with few results, spread less than the distribution.
        """
        assert self.sd is not None
        shown, theta = pair.tables != NO_DOCUMENT, pair.known_theta
        # E[clicks^2] = rate E[examined] + E[rate_q^2] (E[examined^2] - E[sum theta^2])
        by_two = float(((shown @ theta) ** 2).mean() - (shown @ theta**2).mean())
        spread = (self.sd**2 + self.ctr**2 - self.ctr) / by_two - rate**2 if by_two > ROUNDING else 1.0
        size = float(np.clip(rate * (1 - rate) / max(spread, ROUNDING) - 1, *SIZES))
        at = (generator(seed).permutation(pair.n_queries) + 0.5) / pair.n_queries
        while size >= SIZES[0]:
            rates = beta_quantile(at, rate * size, (1 - rate) * size)
            yield np.repeat(rates - rates @ examined / examined.sum(), np.diff(pair.offsets))
            size /= 2

    def note(self, pair: Pair, user: User) -> str:
        """Note for a ``user`` who cannot have the standard deviation given; "" if the user has it."""
        found = 0.0 if self.sd is None else click_sd(pair, user)
        if self.sd is None or abs(found / self.sd - 1) <= TOLERANCE:
            return ""
        bound = "at least" if found > self.sd else "at most"
        return (
            f"sd is {self.sd:g}, but with these lists and this position bias {self.ctr:g} clicks a page have {bound} about "
            f"{found:.4g}: planned with that. Check theta."
        )


def click_sd(pair: Pair, user: User) -> float:
    """Standard deviation of clicks per page, on A's and B's lists alike often.

    >>> pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1, 0.5])
    >>> round(click_sd(pair, position_based([0.5, 0.5], [1, 0.5])) ** 2, 4)  # 0.5 * 0.5 + 0.25 * 0.75
    0.4375
    """
    return float(np.sqrt(_click_variance(pair, user.zeta)))


def _click_variance(pair: Pair, zeta: FloatArray) -> float:
    """Variance of clicks per page: that of independent clicks given the page, and that of their expectation."""
    clicked = np.append(zeta, 0.0)[pair.tables] * pair.known_theta
    pages = clicked.sum(-1)
    return float(pages.mean() - (clicked**2).sum(-1).mean() + pages.var())


def _most_seen(pair: Pair, clicks: FloatArray) -> FloatArray:
    """Relevances of 0 and 1, where documents that the lists show to most people come first, with these clicks of each query."""
    theta, n = pair.known_theta, pair.n_documents
    seen = (exposure_of(pair.top_a, theta, n) + exposure_of(pair.top_b, theta, n)) / 2
    query = np.repeat(np.arange(pair.n_queries), np.diff(pair.offsets))
    order = np.lexsort((-seen.round(9), query))
    # Documents that are seen as much as each other are alike.
    new = (np.diff(query[order], prepend=-1) != 0) | (np.diff(seen[order].round(9), prepend=-1) != 0)
    group = np.cumsum(new) - 1
    looks = np.bincount(group, seen[order])
    first = query[order][np.flatnonzero(new)]
    above = np.cumsum(looks) - looks
    above -= above[np.searchsorted(first, first)]
    share = np.divide(clicks[first] - above, looks, out=np.zeros(len(looks)), where=looks > 0)
    zeta = np.empty(n)
    zeta[order] = np.clip(share, 0, 1)[group]
    return zeta


def _step(pair: Pair, zeta: FloatArray, direction: FloatArray, variance: float) -> float:
    """Step length in a direction of relevances at which clicks have this variance, or the nearest within 0 to 1."""
    with np.errstate(divide="ignore"):
        room = np.where(direction > 0, 1 - zeta, zeta) / np.abs(direction)
    most = float(room[direction != 0].min(initial=np.inf))
    if not np.isfinite(most):
        return 0.0
    start, middle, end = (_click_variance(pair, zeta + most * part * direction) for part in (0.0, 0.5, 1.0))
    square = 2 * (end - 2 * middle + start)  # the variance is a polynomial of the second degree
    line = end - start - square
    roots = np.roots([square, line, start - variance])
    inside = roots.real[(abs(roots.imag) < ROUNDING) & (roots.real >= 0) & (roots.real <= 1)]
    if len(inside):
        return most * float(inside.min())
    parts = np.array([0.0, 1.0, np.clip(-line / (2 * square), 0, 1) if square else 1.0])
    return most * float(parts[np.argmin(abs(start + line * parts + square * parts**2 - variance))])


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
    """Rank past the end of a short list, for each document that it lacks; infinity for all other documents."""
    shown = table != NO_DOCUMENT
    lengths = shown.sum(1)
    ends = np.repeat(np.where(lengths < pair.k, lengths + 1.0, np.inf), np.diff(pair.offsets))
    ends[table[shown]] = np.inf
    return ends
