"""A replay: the rows of one store put into another, sorted by what they say instead of when they came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from ranktrial.log.designs import sound_designs
from ranktrial.store.base import Click, ClickRow, Entry, Impression, ImpressionRow, Marked, MarkRow, Void, VoidRow
from ranktrial.store.protocols import Store


def replay(source: Store, target: Store) -> None:
    """Put all trials of a store into an empty one, of whatever kind; versions get the same ids if they are of one trial."""
    for name in source.trials.names():
        trial = source.trials.find(name)
        target.trials.add(name, trial.secret)
        for row in source.trials.history(name):
            target.trials.add_history(name, Entry(*row[1:]))
        for version in source.trials.versions(name):
            target.trials.add_version(name, version.number, version.config)
            assert version in target.trials.versions(name)
            _replay_version(source, target, version.id)
        if trial.stopped:
            target.trials.stop(name)
    target.flush()


def _replay_version(source: Store, target: Store, version: int) -> None:
    before, numbers = 0, {}  # a database skips numbers of what it did not store after all
    for bias in source.biases.of(version):
        target.biases.add(version, bias.impressions, bias.beliefs, before, source.biases.effects(bias.id))
        before = numbers[bias.id] = target.biases.of(version)[-1].id
    shown = sorted(source.rows(ImpressionRow, version, 0), key=lambda row: row.key)
    found = sound_designs(source.designs(sorted({row.design for row in shown})))
    designs = {id: replace(design, bias=numbers[design.bias]) for id, design in found.items()}
    second = {row.key: row.time // 1_000_000 for row in shown}
    for voided in sorted(source.rows(VoidRow, version, 0), key=lambda row: row.key, reverse=True):
        time = next((row.time for row in shown if row.key == voided.key), 0)
        target.put(Void(voided.key, version, voided.reason, time)).result(60)
    clicks = (
        Click(row.key, version, row.document, bool(row.late), None, second.get(row.key, 0))
        for row in sorted(source.rows(ClickRow, version, 0), key=lambda row: (row.document, row.key))
    )
    impressions = (Impression(row.key, version, designs[row.design], row.place, row.unit, row.time) for row in shown)
    marks = (
        Marked(row.key, version, row.kind)
        for row in sorted(source.rows(MarkRow, version, 0), key=lambda row: (row.kind, row.key))
    )
    rows: Iterable[Click | Impression[Any] | Marked] = chain(clicks, impressions, marks)
    for number, put in enumerate(rows, 1):
        target.put(put)
        if number % 1_000 == 0:  # no more wait to be written than a store takes
            target.flush()
    for name, count in sorted(source.tallies(version).items()):
        target.tally(version, name, count)
