"""Marks of impressions by events about their pages, each kept once, so that checks can count by unit.

What guardrails need to know of events beyond clicks is a row with the impression's key: it belongs to a unit, is left out with
it, and is erased with it. Marks of events that came without a key, which anybody can send, are told apart.
"""

from __future__ import annotations

from enum import IntEnum

PUBLIC = 16  # added to the mark of an event that a browser sent without a key


class Mark(IntEnum):
    """Finding about the page of an impression, from its events."""

    SEEN = 0  # it displayed what was drawn
    SEEN_OTHERWISE = 1
    AT_RANK = 2  # a click event claims the rank that was drawn
    ELSEWHERE = 3
    AGAIN = 4  # a click was sent again
    OTHER = 5  # clicks on what did not stand on it; only noted where they are public
    OFF_PAGE = 6  # clicks on what may stand on a later page; found by whoever reads the log, and so is
    STRANGE = 7  # clicks on what is on none of its pages
    LATE = 8  # clicks that came after the click window, and not in time as well


def mark(kind: Mark, public: bool) -> int:
    """The number of a mark, with where it comes from."""
    return kind | PUBLIC if public else int(kind)
