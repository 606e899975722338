"""Real traffic: a trial shows, counts clicks and reports, and keeps its log in a store."""

from ranktrial.live.schemas import Report, TrialConfig
from ranktrial.live.sqlite import SQLiteStore
from ranktrial.live.store import Overloaded, Store, StoreError
from ranktrial.live.trial import Clicked, Outcome, Shown, Trial

__all__ = [
    "Clicked",
    "Outcome",
    "Overloaded",
    "Report",
    "SQLiteStore",
    "Shown",
    "Store",
    "StoreError",
    "Trial",
    "TrialConfig",
]
