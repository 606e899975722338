"""State of a trial as this process knows it: what the store said when it was last asked."""

from __future__ import annotations

from dataclasses import replace

from ranktrial.config import TrialConfig
from ranktrial.log.known import Known
from ranktrial.store.base import Bias, ErasureRow, ImpressionCount
from ranktrial.store.protocols import Store
from ranktrial.trial.drawing import Policy
from ranktrial.trial.versions import pick_version


class TrialState:
    """A version of a trial; what draws and judges reads it, and whoever looks at the store renews it.

    Args:
        store: Where the trial is.
        name: Its name, or None for the only one of the store.
        version: Number of the version, the current one by default.

    Attributes:
        name: Name of the trial.
        secret: The trial's, which draws and ids are made with.
        version: The version.
        config: Its configuration,
        configs: and those of all versions, by id: clicks on what an earlier one showed still count for it.
        shows: Ranker whose list is shown instead of a draw, None while the trial runs.
        policy: Everything that decides draws.
        cuts: Times (microseconds) before which something has been erased, sorted: a unit's all that there were then, or what
            was older.
        seen: Count of the searches of the version.
    """

    def __init__(self, store: Store, name: str | None, version: int | None) -> None:
        self._store = store
        row = store.trials.find(name)
        self.name, self.secret, self.shows = row.name, row.secret, row.shows
        self.version = pick_version(store.trials.versions(self.name), version, self.name)
        self.configs: dict[int, TrialConfig] = {}
        self.read_configs()
        self._erasures: list[ErasureRow] = []
        self.cuts: list[int] = []
        self.seen = ImpressionCount(0, 0)
        self.read_erasures()
        bias = latest_bias(store, self.version.id, self.config)
        method, segments = self.config.comparison, self.config.segmented
        self.policy = Policy(self.secret, self.version.id, method, bias, _effects(store, bias), segments)

    def read_configs(self) -> None:
        """Take over options that were changed in place, and versions that other processes made."""
        self.configs.update({one.id: TrialConfig.stored(one.config) for one in self._store.trials.versions(self.name)})
        self.config = self.configs[self.version.id]

    def read_erasures(self) -> bool:
        """Take over what was erased, by whichever process; True if there is something new."""
        erasures = self._store.eraser.erasures(self.name)
        changed = erasures != self._erasures
        if changed:
            self._erasures, self.seen = erasures, ImpressionCount(0, 0)
            self.cuts = sorted(row.time if row.earlier_than is None else row.earlier_than for row in erasures)
        return changed

    def read_beliefs(self) -> Bias:
        """Draw with the latest beliefs, whichever process has learnt them."""
        bias = latest_bias(self._store, self.version.id, self.config)
        if bias.id != self.policy.bias.id:
            self.policy = replace(self.policy, bias=bias, known=_effects(self._store, bias))
        return bias

    def count_searches(self) -> None:
        """Count the searches that have come since the last time."""
        before = self.seen
        new = self._store.count(self.version.id, before.last)
        whole = before.impressions + new.impressions
        self.seen = ImpressionCount(whole, new.last, before.began or new.began, max(before.latest, new.latest))


def latest_bias(store: Store, version: int, config: TrialConfig) -> Bias:
    """Position bias of a version; its first one is put into the store."""
    if not (known := store.biases.of(version)):
        store.biases.add(version, 0, config.first_beliefs, 0)
        known = store.biases.of(version)
    return known[-1]


def _effects(store: Store, bias: Bias) -> Known:
    return Known.from_bytes(store.biases.effects(bias.id))
