from __future__ import annotations

import contextlib
import fcntl
import logging
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from numba.core.caching import IndexDataCacheFile

from ranktrial.store.postgres.store import PostgresStore
from ranktrial.store.protocols import Store
from ranktrial.store.sqlite import SQLiteStore
from store.kinds import KINDS, Kind

# Files that take longest, most of it in other processes or to compile: begun first, lest one worker has one at the end.
FIRST = (
    "cli/test_compare.py", "trial/test_warming.py", "study/test_figures.py", "trial/test_supervisor_kill.py",
    "browser/test_site.py", "cli/test_data_commands.py", "methods/test_every_method.py", "methods/test_expected.py",
    "study/test_systems.py", "study/test_run.py", "paper/test_logopt_network.py", "network/test_gradients.py",
    "trial/test_versions.py", "cli/test_demo.py", "store/test_postgres.py", "formats/test_periods.py",
    "formats/test_engines.py", "trial/test_growing_log.py", "service/test_report_process.py", "service/test_instances.py",
    "trial/test_analysis.py", "cli/test_plan.py", "trial/test_exclusion.py", "service/test_store_faults.py",
)  # fmt: skip
# The first call of a kernel compiles it, so single examples have no deadline; derandomised, a run repeats exactly.
settings.register_profile("ranktrial", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("quick", settings.get_profile("ranktrial"), max_examples=20)
settings.load_profile("ranktrial")

# Fixtures that take seconds: a test that needs one is slow, whatever it does itself.
SLOW_FIXTURES = {"browser", "reference"}
# Files that take more than two seconds of processor time: their tests start processes, or compile, or are many.
SLOW_FILES = {
    "test_answers.py", "test_any_order.py", "test_click_model.py", "test_closed_form.py", "test_compare.py",
    "test_course.py", "test_data_commands.py", "test_documents.py", "test_e_processes.py", "test_events.py",
    "test_every_method.py", "test_evidence_by_unit.py", "test_examples.py", "test_exclusion.py", "test_export.py",
    "test_export_estimate.py", "test_extras.py", "test_formats.py", "test_frames.py", "test_gradients.py",
    "test_harm.py", "test_javascript.py", "test_ladder.py", "test_limits.py", "test_logopt_network.py",
    "test_metric_values.py", "test_one_meaning.py", "test_periods.py", "test_plan.py", "test_planning.py",
    "test_postgres.py", "test_power.py", "test_run.py", "test_schema.py", "test_site.py", "test_statistics.py",
    "test_systems.py", "test_testing.py", "test_told.py", "test_ubi.py", "test_versions.py", "test_words.py",
}  # fmt: skip

# Numba reads, changes and writes the index of its cache without a lock: two processes that compile the same kernel for
# different types at the same moment could store one under the name of the other. Workers share a cache, and take turns.
save = IndexDataCacheFile.save


def save_in_turn(file: IndexDataCacheFile, key: object, data: object) -> None:
    with open(Path(file._cache_path, "turn"), "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        save(file, key, data)


IndexDataCacheFile.save = save_in_turn

# Tests write faster than a busy disk takes rows: only those of an overloaded store limit its queue.
for writer in (SQLiteStore, PostgresStore):
    writer.__init__.__kwdefaults__["queue_size"] = 10**6  # type: ignore[index]


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.name in SLOW_FILES or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("slow")
    # pytest 9.2 forgets the operation in the ids of Schemathesis's tests.
    if item.parent is not None and not item.nodeid.endswith(item.name):
        item._id = item.id.parse(f"{item.parent.nodeid}::{item.name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(f"{item.path.parent.name}/{item.path.name}", len(FIRST)))
    twice = [id for id, times in Counter(item.nodeid for item in items).items() if times > 1]
    if twice:
        raise pytest.UsageError(f"{twice[0]}: several tests have this id, and pytest-xdist would run one of them")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a failure without its source where Python 3.11 cannot parse any more, which would end the whole run."""
    try:
        return (yield)
    except SystemError:
        item.config.option.tbstyle = "native"
        return pytest.TestReport.from_item_and_call(item, call)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Handlers of a service's log end with the test that began it: what they write to is closed then."""
    yield
    for handler in [one for one in logging.root.handlers if type(one) is logging.StreamHandler]:
        logging.root.removeHandler(handler)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache of data sets of its own, never the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("RANKTRIAL_CACHE", str(folder))
    return folder


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A place for stores, of each kind there is."""
    return KINDS[request.param](tmp_path)


@pytest.fixture
def store(kind: Kind) -> Iterator[Store]:
    with contextlib.closing(kind.open()) as made:
        yield made
