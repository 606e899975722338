"""Versions of a trial's configuration: the rankings shown change only in a new version that somebody asked for.

All other options change in place, with an entry in the history. A configuration that shows what an earlier version shows is
that version again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import blake2b

from ranktrial.config import SHOWN, TrialConfig
from ranktrial.store.base import ConfigVersion, Entry, HistoryRow, StoreError
from ranktrial.store.protocols import Store


class VersionConflict(ValueError):  # noqa: N818 (reads as what it says)
    """Refusal of a configuration that would begin another version, which nobody asked for or which cannot be.

    Attributes:
        problem: What is wrong, without what to do about it.
        changes: Options that differ from those of the current version, from what to what.
        can_ask: Whether a new version would be made if it were asked for.
    """

    def __init__(self, problem: str, changes: dict[str, str], *, can_ask: bool = True) -> None:
        remedy = ". Ask for a new version with new_version=True, or keep the options of the current one"
        super().__init__(problem + (remedy if can_ask else ""))
        self.problem, self.changes, self.can_ask = problem, changes, can_ask


def current_version(versions: Sequence[ConfigVersion]) -> ConfigVersion:
    """The version whose turn it is."""
    return max(versions, key=lambda one: (one.turn, one.number))


def pick_version(versions: Sequence[ConfigVersion], number: int | None, trial: str) -> ConfigVersion:
    """The version of this number, the current one by default. Raises StoreError."""
    found = [one for one in versions if number in (None, one.number)]
    if found:
        return current_version(found)
    if number is None:
        raise StoreError(f"trial {trial!r} has no version yet")
    raise StoreError(f"trial {trial!r} has no version {number}, it has {', '.join(str(v.number) for v in versions)}")


def storable(config: TrialConfig) -> TrialConfig:
    """The configuration; raises ValueError if the store would give back another."""
    text = config.to_store()
    if TrialConfig.model_validate_json(text) != config:
        raise ValueError(f"this configuration cannot be stored: {text}")
    return config


def make_trial(
    store: Store, name: str, config: TrialConfig, entry: Callable[..., Entry], *, new_version: bool
) -> ConfigVersion:
    """Make a trial, or ``configure`` the one that exists."""
    secret = os.urandom(32) if config.seed is None else blake2b(str(config.seed).encode()).digest()[:32]
    store.trials.add(name, secret)
    return configure(store, name, config, entry, new_version=new_version)


def configure(
    store: Store, trial: str, config: TrialConfig, entry: Callable[..., Entry], *, new_version: bool
) -> ConfigVersion:
    """Bring a trial of the store to a configuration, and return the version that has it and is current now.

    Options that change in place and were not given stay as they are. Several processes may do this at once.

    Args:
        store: Where the trial is.
        trial: Its name.
        config: The configuration.
        entry: Makes an entry of the history from what was done, and ``detail``.
        new_version: Make a new version, where none shows what this configuration shows.
    """
    while not (versions := store.trials.versions(trial)):
        store.trials.add_version(
            trial, 1, config.keeping(None).to_store(), entry("version", detail=f"1: {config.method}, k={config.k}")
        )
    while (wanted := _wanted(versions, config)) is not (now := current_version(versions)):
        running = TrialConfig.stored(now.config)
        differ = running.changes(config, SHOWN)
        if store.trials.find(trial).stopped:
            raise VersionConflict(f"trial {trial!r} is stopped and gets no other version", differ, can_ask=False)
        if wanted is not None:
            store.trials.make_current(
                trial, wanted.number, entry("version", detail=f"{wanted.number} again ({_joined(differ)})")
            )
        elif new_version:
            made = config.keeping(running, anew=True)
            detail = f"{versions[-1].number + 1} ({_joined(running.changes(made))})"
            store.trials.add_version(trial, versions[-1].number + 1, made.to_store(), entry("version", detail=detail))
        else:
            told = f"this configuration shows something else than version {now.number} of trial {trial!r}, which runs"
            raise VersionConflict(f"{told} ({_joined(differ)})", differ)
        versions = store.trials.versions(trial)
    return _change(store, trial, now, config, entry)


def _wanted(versions: Sequence[ConfigVersion], config: TrialConfig) -> ConfigVersion | None:
    """The version that shows what a configuration shows: the current one or the latest of the others, if there is one."""
    now = current_version(versions)
    return next((one for one in (now, *reversed(versions)) if TrialConfig.stored(one.config).shows_as(config)), None)


def _change(
    store: Store, trial: str, version: ConfigVersion, config: TrialConfig, entry: Callable[..., Entry]
) -> ConfigVersion:
    """Change options of a version in place. Metrics that it did not have count from then on."""
    moment = entry("changed").time / 1e6 if config.metrics else 0.0
    while True:
        before = TrialConfig.stored(version.config)
        after = config.keeping(before).measuring_from(before, moment)
        if not (changes := before.changes(after)):
            return version
        store.trials.reconfigure(version, trial, after.to_store(), entry("changed", detail=_joined(changes)))
        version = pick_version(store.trials.versions(trial), version.number, trial)


def change_share(store: Store, trial: str, share: float, entry: Callable[..., Entry]) -> None:
    """Change the share of units that take part in the current version."""
    while try_share(store, trial, pick_version(store.trials.versions(trial), None, trial), share, entry):
        pass  # until it is there, whoever has changed what meanwhile


def try_share(store: Store, trial: str, version: ConfigVersion, share: float, entry: Callable[..., Entry]) -> bool:
    """Change the share of a version, unless somebody has changed the version meanwhile; False if there is nothing to change."""
    before = TrialConfig.stored(version.config)
    after = before.model_copy(update={"share": share})
    changes = before.changes(after)
    if changes:
        store.trials.reconfigure(version, trial, after.to_store(), entry("changed", detail=_joined(changes)))
    return bool(changes)


def last_change(history: Sequence[HistoryRow], option: str) -> HistoryRow | None:
    """The last entry of the history that gave an option of the version that runs its value; None if there is none."""
    for row in reversed(history):
        if row.what == "version" or (row.what == "changed" and option in changed_options(row.detail)):
            return row
    return None


def changed_options(detail: str) -> dict[str, str]:
    """Options that an entry of the history has changed, from what to what."""
    changes = (change.partition(": ") for change in detail.split("; "))
    return {option: change for option, _, change in changes}


def _joined(changes: dict[str, str]) -> str:
    return "; ".join(f"{option}: {change}" for option, change in changes.items())
