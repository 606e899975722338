"""Logs of a trial's versions and their analyses, read and made anew only where something has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.config import TrialConfig
from ranktrial.log import LeftOut, Log, apply_rules
from ranktrial.log.reader import LogReader
from ranktrial.store.base import Bias, ConfigVersion
from ranktrial.store.protocols import Store
from ranktrial.trial.history import excluded_units


class Analysed(NamedTuple):
    """The analysis of a version, what it was made from, and what rules and exclusions left out with the analysis of all."""

    log: Log
    bias: Bias | None
    excluded: frozenset[int]
    analysis: Analysis
    whole: tuple[LeftOut, Analysis] | None


class Analyses:
    """The logs and analyses of one trial.

    Args:
        store: Where the trial is kept.
        trial: Its name.
        clock: Seconds since 1970.

    Attributes:
        lock: Held by whoever asks for analyses: logs that follow each other share what they know of units.
    """

    def __init__(self, store: Store, trial: str, clock: Callable[[], float]) -> None:
        self._store, self._trial, self._clock = store, trial, clock
        self._readers: dict[int, LogReader] = {}
        self._reading = threading.Lock()
        self._found: dict[int, Analysed] = {}
        self.lock = threading.RLock()

    def log(self, version: ConfigVersion, config: TrialConfig) -> Log:
        """Log of a version in this configuration, with all rows stored so far in the order of time."""
        with self._reading:
            reader = self._readers.get(version.id)
            if reader is None or reader.metrics != config.metrics:
                reader = self._readers[version.id] = LogReader(
                    self._store,
                    version.id,
                    config.k,
                    plain=any(config.comparison.traits.ab_shares),
                    segments=config.segmented,
                    covariates=config.covariates,
                    metrics=config.metrics,
                    clock=self._clock,
                )
            try:
                return reader.read()
            except BaseException:
                del self._readers[version.id]
                raise

    def of(self, version: ConfigVersion, *, whole: bool = True) -> Analysed:
        """The analysis of a version, ``whole`` with one of everything beside it where something was left out."""
        config = TrialConfig.stored(version.config)
        log, biases = self.log(version, config), self._store.biases(version.id)
        bias, excluded = biases[-1] if biases else None, excluded_units(self._store, self._trial)
        known = self._found.pop(version.id, None)
        stale = known is None or known.log is not log or (known.bias, known.excluded) != (bias, excluded)
        if known is None or stale or known.analysis.config.changes(config).keys() - {"names"}:
            known = None  # what was found is let go of before it is found anew
            beliefs = config.first_beliefs if bias is None else bias.beliefs
            kept, left_out = apply_rules(log, config.rules, excluded)
            analysis = analyse(kept, config, beliefs)
            of_all = (left_out, analyse(log, config, beliefs)) if whole and left_out else None
            known = Analysed(log, bias, excluded, analysis, of_all)
        elif known.analysis.config != config:  # other names
            renamed = replace(known.analysis, config=config)
            of_all = known.whole and (known.whole[0], replace(known.whole[1], config=config))
            known = known._replace(analysis=renamed, whole=of_all)
        self._found[version.id] = known
        return known

    def forget(self) -> None:
        """Forget all logs and analyses, as after an erasure."""
        with self._reading:
            self._readers.clear()
        self._found.clear()
