"""Real traffic: a trial shows, counts clicks and reports, and keeps its log in a store."""

from ranktrial.live.clicks import Clicked, ClickOutcome, SeenOutcome
from ranktrial.live.drawing import Shown
from ranktrial.live.schemas import Report, TrialConfig
from ranktrial.live.stores.base import Overloaded, Store, StoreError
from ranktrial.live.stores.sqlite import SQLiteStore
from ranktrial.live.trial import Trial

__all__ = [
    "ClickOutcome",
    "Clicked",
    "Overloaded",
    "Report",
    "SQLiteStore",
    "SeenOutcome",
    "Shown",
    "Store",
    "StoreError",
    "Trial",
    "TrialConfig",
]
