"""Futures of rows: who waits for them, in threads and on event loops, and how they are woken."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from ranktrial.store.base import Nothing
from ranktrial.store.stored import DONE, Phase, Stored
from store.kinds import begin_writing, failure


def test_the_life_of_a_row() -> None:
    row = Stored(Nothing())
    assert not row.done()
    with pytest.raises(TimeoutError):
        row.result(0)
    begin_writing(row)
    assert row.stage is Phase.RUNNING
    assert not row.cancel()
    assert row.unwanted
    Stored.finish_all([row])
    assert (row.done(), row.failed, failure(row, 0)) == (True, False, None)
    Stored.finish_all([row], OSError("too late"))
    assert failure(row, 0) is None
    assert failure(DONE, 0) is None


def test_a_row_that_is_taken_back_is_not_written() -> None:
    row = Stored()
    assert row.cancel()
    begin_writing(row)
    assert row.done()
    Stored.finish_all([row])
    assert (row.failed, row.unwanted) == (True, False)
    with pytest.raises(CancelledError):
        row.result(0)


def test_who_takes_a_row_back_meanwhile_sees_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or an impression that two calls give up, and that was never stored, would be noted as void."""
    row, finish, seen = Stored(), Stored.finish_all, list[tuple[bool, bool]]()

    def slowly(rows: list[Stored], problem: BaseException | None = None) -> None:
        seen.append((rows[0].cancel(), rows[0].failed))
        finish(rows, problem)

    monkeypatch.setattr(Stored, "finish_all", staticmethod(slowly))
    assert row.cancel()
    assert seen == [(False, True)]
    assert row.done()


@pytest.mark.parametrize("problem", [None, OSError("no disk")])
def test_all_threads_that_wait_are_woken(problem: OSError | None) -> None:
    row, told = Stored(), list[BaseException | None]()
    threads = [threading.Thread(target=lambda: told.append(failure(row))) for _ in range(4)]
    for thread in threads:
        thread.start()
    begin_writing(row)
    Stored.finish_all([row], problem)
    for thread in threads:
        thread.join()
    assert told == [problem] * 4


def test_rows_that_are_done_together_wake_a_loop_once() -> None:
    async def run() -> int:
        loop, rows = asyncio.get_running_loop(), [Stored() for _ in range(5)]
        waiting = [asyncio.create_task(row.on_disk(60)) for row in (*rows, rows[0])]
        await asyncio.sleep(0)
        calls, call_soon = [], loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *call: calls.append(call) or call_soon(*call)  # type: ignore
        begin_writing(*rows)
        await asyncio.to_thread(Stored.finish_all, rows)
        await asyncio.gather(*waiting)
        return sum("settle" in call[0].__name__ for call in calls)

    assert asyncio.run(run()) == 1


def test_who_gives_up_on_a_loop_leaves_the_row_to_others() -> None:
    async def run() -> None:
        row = Stored()
        with pytest.raises(TimeoutError):
            await row.on_disk(0)
        other = asyncio.create_task(row.on_disk(60))
        await asyncio.sleep(0)
        begin_writing(row)
        Stored.finish_all([row])
        await other
        await row.on_disk(0)

    asyncio.run(run())


def test_why_a_row_failed_is_raised_on_a_loop() -> None:
    async def run(row: Stored) -> None:
        waiting = asyncio.create_task(row.on_disk(60))
        await asyncio.sleep(0)
        begin_writing(row)
        Stored.finish_all([row], OSError("no disk"))
        await waiting

    with pytest.raises(OSError, match="no disk"):
        asyncio.run(run(Stored()))


def test_a_loop_that_is_closed_harms_nobody() -> None:
    row = Stored()

    async def give_up() -> None:
        asking = asyncio.create_task(row.on_disk(60))
        await asyncio.sleep(0)
        asking.cancel()

    asyncio.run(give_up())
    begin_writing(row)
    Stored.finish_all([row])
    assert failure(row, 0) is None
