"""Names of counters that are no rows of the store: of each version, and of all trials of a store."""

from __future__ import annotations

SLOW = "calls over 5 ms"
SHOWN_AGAIN = "searches shown again"  # on a retry, further down the results, or later
NO_TRIAL = "events with an id of no trial"  # of all trials of a store
DUPLICATES = "duplicate clicks"
OFF_PAGE = "clicks off the drawn page"
LATER_PAGES = "later pages shown"
ELSEWHERE = "pages with a click at another rank than drawn"  # by the position that its event claims
SEEN_OTHERWISE = "pages seen otherwise than drawn"
NOT_STORED = "impressions that are not stored, with clicks"
NOT_STORED_PUBLIC = "impressions that are not stored, with clicks without a key"
OUTSIDE_SHARE = "searches outside the share"
OUTSIDE_SHARE_CLICKS = "clicks outside the share"
OUTSIDE_SHARE_EVENTS = "events outside the share"
ERASED = "clicks on erased impressions"
SEGMENT = "searches of another segment: "  # and why
COVARIATES = "searches without a covariate: "  # and why

# For guardrails only: neither left out nor out of order, or (slow calls) up to chance, where the rest of a report is not.
AS_IT_SHOULD_BE = (SLOW, SHOWN_AGAIN, LATER_PAGES, NOT_STORED_PUBLIC)
