"""Logs of trials, their analyses, and what follows from these: reports and position bias, made anew only after a change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from ranktrial import checks
from ranktrial.analysis import evidence
from ranktrial.analysis.analyse import MOST_LEARNT, Analysis, analyse, with_few_designs, with_segments
from ranktrial.config import TrialConfig
from ranktrial.log import LeftOut, Log, apply_rules
from ranktrial.log.known import Known
from ranktrial.log.reader import LogReader
from ranktrial.report.making import QUERY_UNITS, make_report, readings_agree
from ranktrial.report.schema import Report
from ranktrial.store.base import ALL_TRIALS, Bias, ConfigVersion, ErasureRow
from ranktrial.store.protocols import Store
from ranktrial.trial.history import excluded_units, history_of, new_entry
from ranktrial.trial.state import latest_bias
from ranktrial.trial.versions import pick_version


class Learner(Protocol):
    """Interface of what makes reports, and refits position bias, which is in the store when ``learn`` returns: this process, or
    another one.
    """

    def learn(self, trial: str, version: int, at: int | None, who: str) -> None: ...
    def report(self, trial: str, query_units: int, latencies: Sequence[int], version: int | None = None) -> Report: ...


class Analysed(NamedTuple):
    """The analysis of a version, what it was made from, and what rules and exclusions left out.

    ``of_all`` is the analysis of everything, if something was left out and somebody has asked for it.
    """

    log: Log
    bias: Bias | None
    excluded: frozenset[int]
    analysis: Analysis
    left_out: LeftOut
    of_all: Analysis | None = None


class Learning:
    """Logs and analyses of the trials of a store, in this process; usable from any thread.

    Args:
        store: Where the trials are kept.
        clock: Seconds since 1970.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._readers: dict[int, LogReader] = {}  # by the id of a version
        self._found: dict[int, Analysed] = {}
        self._erasures: dict[str, list[ErasureRow]] = {}  # by trial: what all of this knows of
        self._lock = threading.RLock()  # logs that follow each other share what they know of units

    def report(
        self, trial: str, query_units: int = QUERY_UNITS, latencies: Sequence[int] = (), version: int | None = None
    ) -> Report:
        """Report on a version of a trial, the current one by default, from everything that is stored.

        Args:
            trial: The trial's name.
            query_units: Number of units that must have asked a query before the report names it.
            latencies: Durations of recent calls of ``rank``, in nanoseconds.
            version: Number of the version.
        """
        checks.whole("query_units", query_units, 0)
        store = self._store
        store.flush(60.0)
        versions = store.trials.versions(trial)
        wanted = pick_version(versions, version, trial)
        versions.sort(key=lambda one: (one.id == wanted.id, one.number))
        with self._lock:
            # Of other versions only the result is told, without what was left out.
            analysed = {one: self.analysed(trial, one, whole=one.id == wanted.id) for one in versions}
            of_all = analysed[wanted].of_all
            return make_report(
                trial,
                {one: each.analysis for one, each in analysed.items()},
                store.tallies(wanted.id) + store.tallies(ALL_TRIALS),
                store.trials.find(trial).shows,
                latencies,
                None if of_all is None else (analysed[wanted].left_out, of_all),
                history_of(store, trial),
                query_units,
                self._clock(),
            )

    def learn(self, trial: str, version: int, at: int | None, who: str) -> None:
        """Refit position bias to what is stored, as due after ``at`` searches (now if None), and put it into the store."""
        store = self._store
        one = pick_version(store.trials.versions(trial), version, trial)
        config = TrialConfig.stored(one.config)
        before, method = latest_bias(store, one.id, config), config.comparison
        beliefs, known = before.beliefs, Known()
        if method.traits.learns_at:
            with self._lock:
                analysed = self.analysed(trial, one)
                seen, agree = analysed.analysis.log, readings_agree(analysed.analysis)
                latest = seen.last(with_few_designs(seen.design[::-1], MOST_LEARNT))
                log = latest.compact().grouped_by_query()
                told = evidence(log, agree=agree, gain=analysed.analysis.gain, impressions=len(seen))
                beliefs = with_segments(method.learn(told, beliefs), analysed.analysis.differs)
                effects = beliefs.effects
                if effects is not None:
                    known = Known.of(log.queries, log.documents, log.document_query, effects)
                searches = len(analysed.log)
        else:
            searches = store.count(one.id, 0).impressions
        detail = f"position bias of version {version} from {searches:,} searches"
        entry = new_entry(self._clock, "updated", who=who, detail=detail)
        at = searches if at is None else at
        store.biases.add(one.id, at, beliefs, before.id, known.to_bytes(), (trial, entry))

    def log(self, trial: str, version: ConfigVersion) -> Log:
        """Log of a version with all rows stored so far, in the order of time."""
        config = TrialConfig.stored(version.config)
        with self._lock:
            self._forget_erased(trial)
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

    def analysed(self, trial: str, version: ConfigVersion, *, whole: bool = True) -> Analysed:
        """The analysis of a version, ``whole`` with one of everything beside it where something was left out."""
        config = TrialConfig.stored(version.config)
        with self._lock:
            log, biases = self.log(trial, version), self._store.biases.of(version.id)
            bias, excluded = biases[-1] if biases else None, excluded_units(self._store, trial)
            known = self._found.pop(version.id, None)
            stale = known is None or known.log is not log or (known.bias, known.excluded) != (bias, excluded)
            if known is None or stale or known.analysis.config.changes(config).keys() - {"names"}:
                known = None  # what was found is let go of before it is found anew
                beliefs = config.first_beliefs if bias is None else bias.beliefs
                kept, left_out = apply_rules(log, config.rules, excluded)
                known = Analysed(log, bias, excluded, analyse(kept, config, beliefs), left_out)
            elif known.analysis.config != config:  # other names
                of_all = known.of_all and replace(known.of_all, config=config)
                known = known._replace(analysis=replace(known.analysis, config=config), of_all=of_all)
            if whole and known.left_out and known.of_all is None:
                beliefs = config.first_beliefs if bias is None else bias.beliefs
                known = known._replace(of_all=analyse(log, config, beliefs))
            self._found[version.id] = known
            return known

    def _forget_erased(self, trial: str) -> None:
        """Keep nothing in memory that was erased from the store, by whichever process."""
        erasures = self._store.eraser.erasures(trial)
        if self._erasures.setdefault(trial, erasures) != erasures:
            self._erasures[trial] = erasures
            self._readers.clear()
            self._found.clear()
