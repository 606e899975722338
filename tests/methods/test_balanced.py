from __future__ import annotations

from hypothesis import given

from oracles import balanced, balanced_value, click_patterns, small_worlds
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.methods import Balanced
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based


@given(small_worlds())
def test_displays_and_values_agree_with_joachims_text(world: tuple[Pair, User]) -> None:
    pair, user = world
    a, b = pair.a[0].tolist(), pair.b[0].tolist()
    displays = Balanced().displays(pair)
    for display, a_first in enumerate((True, False)):
        row = displays.mixture.rankings[display]
        shown = tuple(row[row != NO_DOCUMENT].tolist())
        assert shown == balanced(a, b, pair.k, a_first)
        for clicks, _ in click_patterns(user, shown):
            assert displays.value_of(display, clicks) == balanced_value(a, b, pair.k, shown, clicks)


def test_random_clicks_favour_the_ranker_that_moved_one_document_to_the_end() -> None:
    """The known bias: with A = abcd and B = bcda, one random click credits B in three of four places."""
    pair = Pair.from_lists(["abcd"], ["bcda"], k=4)
    for chance in (0.01, 0.3):
        blind = position_based([chance] * 4, [1.0] * 4)
        assert Balanced().moments(pair, blind).mean < -chance
    assert Balanced().moments(pair.swapped(), blind).mean > chance
