from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given

from oracles import balanced, click_patterns, small_worlds
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.methods import Balanced, DebiasedBalanced, debiased_balanced
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based

ROOT = Path(__file__).resolve().parents[2]


def test_three_documents_by_hand() -> None:
    """A = abc, B = bca: a b c or b a c is shown. At ranks 1 and 2 the coin decides between a (A's) and b (B's), so each click
    there counts for its ranker with probability 1/2 and weighs 2; c stands at rank 3 either way and counts for nobody.

    Of zeta (0.1, 0, 1) and theta (1, 0.9, 0.8) only clicks on a count: 0.1 at rank 1, 0.09 at rank 2, each x = 2.
    """
    pair = Pair.from_lists(["abc"], ["bca"], k=3)
    shown = {d.documents: (d.probability, d.credits) for d in DebiasedBalanced().displays(pair).of_query(0)}
    assert shown == {(0, 1, 2): (0.5, (2, -2, 0)), (1, 0, 2): (0.5, (-2, 2, 0))}
    moments = DebiasedBalanced().moments(pair, position_based([0.1, 0, 1], [1, 0.9, 0.8]))
    assert moments.mean == pytest.approx(2 * (0.1 + 0.09) / 2, abs=1e-12)
    assert moments.variance == pytest.approx(4 * (0.1 + 0.09) / 2 - 0.19**2, abs=1e-12)
    assert moments.ctr == pytest.approx((0.1 + 0.09) / 2 + 0.8, abs=1e-12)


@given(small_worlds(max_k=4))
def test_values_agree_with_the_definition(world: tuple[Pair, User]) -> None:
    """Both merges by Joachims' text, who is credited at each rank of both, and one over how often."""
    pair, user = world
    lists = [pair.a[0].tolist()[: pair.k], pair.b[0].tolist()[: pair.k]]
    pages = [balanced(lists[0], lists[1], pair.k, a_first) for a_first in (True, False)]

    def counts_for(ranker: int, page: tuple[int, ...], rank: int) -> bool:
        mine, other = (
            ranked.index(page[rank]) if page[rank] in ranked else 99 for ranked in (lists[ranker], lists[1 - ranker])
        )
        return mine <= other

    displays = DebiasedBalanced().displays(pair)
    for display, page in enumerate(pages):
        row = displays.mixture.rankings[display]
        assert tuple(row[row != NO_DOCUMENT].tolist()) == page
        for clicks, _ in click_patterns(user, page):
            x = 0.0
            for rank in (r for r, clicked in enumerate(clicks) if clicked):
                chance = [sum(counts_for(ranker, one, rank) for one in pages) / 2 for ranker in (0, 1)]
                if all(chance):
                    x += counts_for(0, page, rank) / chance[0] - counts_for(1, page, rank) / chance[1]
            assert displays.value_of(display, clicks) == x


def test_it_mends_what_it_is_named_for() -> None:
    """Random clicks on a list and the same list with its first document moved to the end."""
    pair = Pair.from_lists(["abcd"], ["bcda"], k=4)
    blind = position_based([0.3] * 4, [1, 0.8, 0.5, 0.2])
    assert Balanced().moments(pair, blind).mean < -0.1
    assert DebiasedBalanced().moments(pair, blind).mean == pytest.approx(0, abs=1e-12)


def test_the_walk_through_shows_this_very_file() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "add-a-method.md").read_text(), re.S)
    assert blocks[0] in inspect.getsource(debiased_balanced)
    assert "class DebiasedBalanced(Method)" in blocks[0]
    assert len(inspect.getsource(debiased_balanced).splitlines()) <= 60
