"""Checks that every method must pass, for the library's methods and for one of your own.

``check_method(MyMethod())`` runs them all; each may be called alone, and ``CHECKS`` suits ``pytest.mark.parametrize``. They go
through small worlds, pairs of short, long, equal, disjoint and empty lists with users of three kinds, where everything can be
enumerated, and hold a method to its ``traits`` (``tends_to_delta``, ``fair_to_random_clicks`` and so on). A failure is
an AssertionError that says what was expected, of which method, in which world. A method that learns on the way is checked as
it is before the first click.

>>> from ranktrial.methods import TeamDraft
>>> check_method(TeamDraft())
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, FloatArray
from ranktrial.methods import Linear, Method, parse_method
from ranktrial.rankings import Pair
from ranktrial.seeds import Seed
from ranktrial.users import User, cascade, position_based, trust_bias

_World = tuple[Pair, User]
_Clicks = tuple[bool, ...]
_Number = float | FloatArray
RANDOM_WORLDS = 100
LISTS = [lists.split("|") for lists in ("abc|abc", "abc|bca", "abcd|bcda", "ab|cd", "a|bcd", "abcde|ba", "abc|", "|a")]


def small_worlds(queries: int = 1, most_ranks: int = 5) -> Iterator[_World]:
    """Pairs of lists over up to five documents, cut off at every k, and users of every kind; the same each time.

    Telling cases come first, then random ones. The pair knows the user's position bias.
    """
    rng = np.random.default_rng([queries, most_ranks])
    cases = [(LISTS[i : i + queries], k) for k in range(1, most_ranks + 1) for i in range(len(LISTS) - queries + 1)]
    for _ in range(RANDOM_WORLDS):
        lengths = [divmod(int(both), 6) for both in rng.integers(1, 36, queries)]  # 0 to 5, but not both 0
        drawn = [["".join(rng.permutation(list("abcde"))[:n]) for n in both] for both in lengths]
        cases.append((drawn, int(rng.integers(1, most_ranks + 1))))
    for i, (lists, k) in enumerate(cases):
        pair = Pair.from_lists([a for a, _ in lists], [b for _, b in lists], k)
        zeta, theta, high, low = (rng.integers(0, 21, n) / 20 for n in (pair.n_documents, k, k, k))
        leave_click, leave_skip = rng.integers(0, 21, 2) / 20
        user = (
            position_based(zeta, theta),
            trust_bias(zeta, theta, relevant=np.maximum(high, low), irrelevant=np.minimum(high, low)),
            cascade(zeta, k, leave_after_click=leave_click, leave_after_skip=leave_skip, theta=theta),
        )[i % 3]
        yield pair.knowing(theta=user.slope), user


def fixed_world(k: int = 3, n_queries: int = 4, *, seed: Seed = 0) -> _World:
    """Queries of 1 to 5 documents (some shorter than k), lists of unequal length, two disjoint lists; position-based user."""
    rng = np.random.default_rng(seed)
    sizes = [1 + i % 5 for i in range(1, n_queries + 1)]
    a = [rng.permutation(n).tolist() for n in sizes]
    b = [rng.permutation(n).tolist()[: max(1, n - i % 2)] for i, n in enumerate(sizes)]
    pair = Pair.from_lists([*a, ["x", "y"]], [*b, ["z", "w"]], k)
    theta = np.sort(rng.uniform(0, 1, k))[::-1]
    return pair.knowing(theta=theta), position_based(rng.uniform(0, 1, pair.n_documents), theta)


def click_patterns(user: User, ranking: Sequence[int]) -> Iterable[tuple[_Clicks, float]]:
    """Every click pattern on a ranking with its probability, by walking down the list."""
    walks: list[tuple[_Clicks, float, bool]] = [((), 1.0, True)]
    for rank, document in enumerate(ranking):
        p = user.slope[rank] * user.zeta[document] + user.intercept[rank]
        either = (True, p, user.stay_after_click[rank]), (False, 1 - p, user.stay_after_skip[rank])
        longer = [((*clicks, False), chance, False) for clicks, chance, reading in walks if not reading]
        for clicks, chance, reading in walks:
            for clicked, part, stay in either if reading else ():
                longer.append(((*clicks, clicked), chance * part * stay, True))
                longer.append(((*clicks, clicked), chance * part * (1 - stay), False))
        walks = longer
    totals: dict[_Clicks, float] = defaultdict(float)
    for clicks, chance, _ in walks:
        totals[clicks] += chance
    return totals.items()


def _expect(holds: bool | np.bool_, method: Method, sentence: str, world: _World | None = None) -> None:
    where = ""
    if world is not None and not holds:
        pair, user = world
        lists = "; ".join(f"A {pair.a[q].tolist()}, B {pair.b[q].tolist()}" for q in range(pair.n_queries))
        where = (
            f"\nLists {lists}; k = {pair.k}; {user.name} user of zeta {user.zeta.tolist()}, theta {user.slope.tolist()}"
        )
    if not holds:
        raise AssertionError(f"{method}: {sentence}.{where}")


def _equal(method: Method, name: str, found: _Number, right: _Number, error: float, world: _World) -> None:
    _expect(np.all(np.abs(found - right) <= error), method, f"{name} must be {right}, not {found}", world)


def check_text(method: Method) -> None:
    """Prints as it is written, parses back, and can be a key."""
    again = parse_method(str(method))
    _expect(again == method, method, f"its text must parse back to an equal method, gives {again}")
    _expect(hash(again) == hash(method), method, "equal methods must have equal hashes")
    _expect(str(again) == str(method), method, f"equal methods must have one text, found {again} too")


def check_displays(method: Method) -> None:
    """Displays are a distribution over valid rankings, full pages of what the rankers list."""
    for world in small_worlds(queries=2, most_ranks=3):
        pair, mixture = world[0], method.displays(world[0]).mixture
        for q in range(pair.n_queries):
            cells = slice(mixture.offsets[q], mixture.offsets[q + 1])
            rows, weights = mixture.rankings[cells], mixture.weights[cells]
            _equal(method, "the sum of probabilities", weights.sum(), 1, 1e-12, world)
            every = {*pair.a[q].tolist(), *pair.b[q].tolist()}
            tops = {*pair.top_a[q].tolist(), *pair.top_b[q].tolist()} - {NO_DOCUMENT}
            may = tops if method.traits.shows_top_only else every
            is_a, is_b = ((rows == top[q]).all(1) for top in (pair.top_a, pair.top_b))
            for row, plain in zip(rows, is_a | is_b):
                shown = row[row != NO_DOCUMENT].tolist()
                valid = row[: len(shown)].tolist() == shown and len({*shown}) == len(shown) and may.issuperset(shown)
                sentence = f"a page must hold documents of {sorted(may)}, each once, from the top, not {row.tolist()}"
                _expect(valid, method, sentence, world)
                if not (plain and any(method.traits.ab_shares)):  # else as long as the ranker's own list
                    _equal(method, "the length of a page", len(shown), min(pair.k, len(every)), 0, world)
            to_a, to_b = method.traits.ab_shares
            for name, own, share in (("A", is_a, to_a), ("B", is_b, to_b), ("A or B", is_a | is_b, to_a + to_b)):
                sentence = f"by ab_shares {share:g} of pages must be the own list of {name}"
                _expect(weights[own].sum() >= share - 1e-9, method, sentence, world)


def check_moments(method: Method) -> None:
    """Exact moments and placement are those of enumerated displays and click patterns."""
    for world in small_worlds(queries=2, most_ranks=4):
        pair, user = world
        displays = method.displays(pair)
        placement = np.zeros((pair.n_documents, pair.k))
        first = second = clicks = 0.0
        for display, row in enumerate(displays.mixture.rankings):
            shown, weight = row[row != NO_DOCUMENT], displays.mixture.weights[display]
            placement[shown, np.arange(len(shown))] += weight
            for pattern, probability in click_patterns(user, shown):
                x, chance = displays.value_of(display, pattern), probability * weight / pair.n_queries
                first += chance * x
                second += chance * x**2
                clicks += chance * sum(pattern)
        found = method.moments(pair, user)
        _equal(method, "the mean of x", found.mean, first, 1e-12, world)
        _equal(method, "clicks per impression", found.ctr, clicks, 1e-12, world)
        if method.traits.averages_impressions:
            _equal(method, "the variance of x", found.variance, second - first**2, 1e-10, world)
        _equal(method, "placement", method.policy(pair).placement(), placement, 1e-9, world)


def check_expectation(method: Method) -> None:
    """E[x] is Delta for a method that says so, exactly; for another it is known not to be."""
    worst = 0.0
    for pair, user in small_worlds(queries=2, most_ranks=3):
        user = position_based(user.zeta, pair.known_theta) if method.traits.needs_position_bias else user
        delta, mean = pair.delta(user), method.moments(pair, user).mean
        worst = max(worst, abs(mean - delta))
        if method.traits.tends_to_delta:
            _equal(method, "E[x], which tends to Delta,", mean, delta, 1e-12, (pair, user))
    _expect(
        method.traits.tends_to_delta or worst > 0.05,
        method,
        "E[x] is Delta in every world: tends_to_delta must be True",
    )


def check_random_clicks(method: Method) -> None:
    """Clicks that do not look at documents favour neither ranker, unless the method says that they may."""
    worst = 0.0
    for pair, user in small_worlds(most_ranks=5):
        lengths = [(top != NO_DOCUMENT).sum() for top in (pair.top_a, pair.top_b)]
        if method.traits.tends_to_delta and lengths[0] != lengths[1]:
            continue  # a longer list gets more random clicks: that is a true difference
        blind = User("random", np.full(pair.n_documents, 0.7), user.slope, user.intercept, *[np.ones(pair.k)] * 2)
        blind = position_based(blind.zeta, pair.known_theta) if method.traits.needs_position_bias else blind
        mean = method.moments(pair, blind).mean
        worst = max(worst, abs(mean))
        if method.traits.fair_to_random_clicks:
            _equal(method, "E[x] of random clicks", mean, 0, 1e-9, (pair, blind))
    sentence = "random clicks favour neither ranker in any world: fair_to_random_clicks must be True"
    _expect(method.traits.fair_to_random_clicks or worst > 1e-6, method, sentence)


def check_swapping(method: Method) -> None:
    """Swapping the rankers flips the sign of the mean and changes nothing else."""
    for world in small_worlds(queries=2, most_ranks=3):
        pair, user = world
        here, there = method.moments(pair, user), method.swapped().moments(pair.swapped(), user)
        _equal(method, "with A and B swapped, the mean of x", there.mean, -here.mean, 1e-12, world)
        _equal(method, "with A and B swapped, the variance of x", there.variance, here.variance, 1e-12, world)
        _equal(method, "with A and B swapped, clicks per impression", there.ctr, here.ctr, 1e-12, world)


def check_identical(method: Method) -> None:
    """Identical rankers give zero: on average, and for most methods on every impression."""
    lists, theta = ["abcd", "e", "fg"], [1, 0.5, 0.3]
    pair = Pair.from_lists(lists, lists, k=3).knowing(theta=theta)
    zeta = np.linspace(0.1, 0.9, pair.n_documents)
    for user in (position_based(zeta, theta), cascade(zeta, 3)):
        moments = method.moments(pair, user)
        _equal(method, "E[x] of identical rankers", moments.mean, 0, 1e-12, (pair, user))
        squares = method.simulate(pair, user, [1000], seed=1).mean_square
        always = moments.variance == 0 and bool(np.all(squares == 0))
        sentence = f"zero_on_identical must be {always}, as x is on impressions of identical lists"
        _expect(always == method.traits.zero_on_identical, method, sentence, (pair, user))


def check_seeds(method: Method) -> None:
    """Check that the same seed repeats a run to the last bit, and that another seed gives another run."""
    pair, user = fixed_world(seed=2)
    first, again, other = (method.simulate(pair, user, [100, 1000], seed=seed) for seed in (7, 7, 8))
    for name in ("estimate", "mean_square", "ctr"):
        same = np.array_equal(getattr(first, name), getattr(again, name), equal_nan=True)
        _expect(same, method, f"the same seed must give the same {name}", (pair, user))
    _expect(not np.array_equal(first.ctr, other.ctr), method, "another seed must give another run", (pair, user))


def check_run_so_far(method: Method) -> None:
    """A checkpoint reports the run so far: more checkpoints only look more often."""
    if not method.traits.averages_impressions:
        return  # there is no run impression by impression
    pair, user = fixed_world(seed=3)
    often = method.simulate(pair, user, [1, 10, 500, 2000], seed=4, shortcut=False)
    once = method.simulate(pair, user, [2000], seed=4, shortcut=False)
    same = (often.estimate[-1], often.mean_square[-1]) == (once.estimate[0], once.mean_square[0])
    _expect(same, method, "the run must not depend on how often it is looked at", (pair, user))


def check_simulation(method: Method) -> None:
    """Means of x, x^2 and clicks in 400,000 impressions are within 4 standard errors of the exact ones."""
    if method.traits.learns_at:
        return
    pair, base = fixed_world(seed=5, k=3, n_queries=5)
    value = method.displays(pair).value
    largest = 3 * np.abs(value.values).max() if isinstance(value, Linear) else 1  # of |x|, at k = 3
    n = 400_000
    for user in (
        position_based(base.zeta, [1, 0.6, 0.3]),
        trust_bias(base.zeta, [1, 0.7, 0.4], relevant=[0.9, 0.8, 0.7], irrelevant=[0.4, 0.2, 0.1]),
        cascade(base.zeta, 3, leave_after_click=0.6, leave_after_skip=0.2),
    ):
        exact = method.moments(pair, user)
        square = exact.variance + exact.mean**2
        for shortcut in (False, True):
            run = method.simulate(pair, user, [n], seed=11, shortcut=shortcut)
            for name, found, right, spread in (
                ("mean of x", run.estimate[0], exact.mean, np.sqrt(exact.variance)),
                ("mean of x^2", run.mean_square[0], square, largest * np.sqrt(square)),
                ("number of clicks", run.ctr[0], exact.ctr, np.sqrt(3 * exact.ctr)),
            ):
                error = 4 * spread / np.sqrt(n) + 1e-12
                _equal(method, f"simulated with {shortcut=}, the {name}", found, right, error, (pair, user))


def check_squared_error(method: Method) -> None:
    """The squared error of a run is that of single impressions, variance plus squared bias, within 5 %."""
    if method.traits.learns_at:
        return
    pair, user = fixed_world(seed=6)
    delta, exact = pair.delta(user), method.moments(pair, user)
    found = method.simulate(pair, user, [200_000], seed=3).squared_error(delta)[0]
    right = exact.variance + (exact.mean - delta) ** 2
    _equal(method, "the mean of (x - Delta)^2", found, right, 0.05 * right, (pair, user))


def check_checkpoints(method: Method) -> None:
    """Checkpoints that do not increase from at least 1 are refused."""
    pair, user = fixed_world()
    for bad in ([], [0, 5], [5, 5], [10, 5]):
        try:
            method.simulate(pair, user, bad, seed=1)
        except ValueError as refusal:
            _expect("checkpoints" in str(refusal), method, f"the refusal of {bad} must name checkpoints: {refusal}")
        else:
            _expect(False, method, f"checkpoints {bad} must be refused with a ValueError")


CHECKS: tuple[Callable[[Method], None], ...] = (
    check_text,
    check_displays,
    check_moments,
    check_expectation,
    check_random_clicks,
    check_swapping,
    check_identical,
    check_seeds,
    check_run_so_far,
    check_simulation,
    check_squared_error,
    check_checkpoints,
)


def check_method(method: Method) -> None:
    """Run all checks; an AssertionError says what is wrong with the method, or with what its traits say of it."""
    for check in CHECKS:
        check(method)
