"""Names of what is counted and is no row of the store: of each version, and of all trials of a store."""

from __future__ import annotations

SLOW = "calls over 5 ms"
NO_TRIAL = "events with an id of no trial"  # of all trials of a store
DUPLICATES = "duplicate clicks"
OFF_PAGE = "clicks off the drawn page"
LATER_PAGES = "later pages shown"
AT_RANK = "clicks at the drawn rank"  # by the position that their events claim
ELSEWHERE = "clicks at another rank than drawn"
SEEN = "pages seen as drawn"
SEEN_OTHERWISE = "pages seen otherwise than drawn"

# For guardrails only: neither left out nor out of order, or (slow calls) up to chance, where the rest of a report is not.
AS_IT_SHOULD_BE = (SLOW, LATER_PAGES, AT_RANK, SEEN)
