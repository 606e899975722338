"""Trials on live traffic: drawing of rankings, clicks, learning, and the life of a trial."""

from ranktrial.trial.clicks import Clicked, ClickOutcome, SeenOutcome
from ranktrial.trial.showing import Shown
from ranktrial.trial.trial import Trial
from ranktrial.trial.versions import VersionConflict
from ranktrial.trial.webhooks import Webhook

__all__ = ["ClickOutcome", "Clicked", "SeenOutcome", "Shown", "Trial", "VersionConflict", "Webhook"]
