"""Counts pooled over the versions of a design: what must not be done, for tests that show why."""

from __future__ import annotations

from ranktrial.log import Log
from ranktrial.log.log import counts_of_groups
from ranktrial.position_bias import Counts


def pooled_counts(log: Log, groups: int = 20) -> list[Counts]:
    """Shows and clicks per query and document, whichever design showed them, for each group of units."""
    query = log.document_query
    return counts_of_groups(*log.tables(log.document, len(query), log.group(groups), groups), query, groups)
