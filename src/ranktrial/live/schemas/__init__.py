"""Schemas of what goes in and out of a trial: ``config``, ``requests`` (impressions, clicks) and the ``report``.

The same models give JSON Schema, OpenAPI and the documents in the store. They are checked at the border (when a trial is
made, when a request arrives over HTTP); ``Trial.rank`` itself never builds one.
"""

from ranktrial.live.schemas.common import LONGEST_TEXT
from ranktrial.live.schemas.config import LONGEST_NAME, TrialConfig
from ranktrial.live.schemas.report import (
    GROUPS,
    WORST_FIRST,
    BandPoint,
    Contributor,
    Everyone,
    Forecast,
    Group,
    Guardrail,
    History,
    HistoryEntry,
    LiftTold,
    Pace,
    Part,
    Ranker,
    Reading,
    Report,
    Status,
    Theta,
    Visitors,
    turned,
)
from ranktrial.live.schemas.requests import (
    ClickEvent,
    ErasedRows,
    Erasure,
    Exclusion,
    RankRequest,
    RankResponse,
    SeenEvent,
    Stop,
)

__all__ = [
    "GROUPS",
    "LONGEST_NAME",
    "LONGEST_TEXT",
    "WORST_FIRST",
    "BandPoint",
    "ClickEvent",
    "Contributor",
    "ErasedRows",
    "Erasure",
    "Everyone",
    "Exclusion",
    "Forecast",
    "Group",
    "Guardrail",
    "History",
    "HistoryEntry",
    "LiftTold",
    "Pace",
    "Part",
    "RankRequest",
    "RankResponse",
    "Ranker",
    "Reading",
    "Report",
    "SeenEvent",
    "Status",
    "Stop",
    "Theta",
    "TrialConfig",
    "Visitors",
    "turned",
]
