"""The thread in the background takes over what others did and refits when it is due, without ``rank`` noticing."""

from __future__ import annotations

from pathlib import Path

from live_server import wait_until
from ranktrial.methods import LogOpt
from ranktrial.trial import Trial
from simulated_trial import Ticks, World

WORLD = World.make(queries=10)


def test_refits_on_schedule_and_tells_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with (
        Trial.create(path, k=5, seed=1, method=LogOpt(schedule=(300,)), clock=Ticks()) as one,
        Trial.open(path, clock=Ticks(), background=False) as other,
    ):
        WORLD.run(one, 400, seed=1)
        wait_until(lambda: one.state.policy.bias.impressions == 300)
        assert one.state.policy.bias.fitted
        assert not other.state.policy.bias.fitted
        other.watcher.step()
        assert other.state.policy.bias == one.state.policy.bias
        assert len(other.store.biases.of(1)) == 2  # the other did not fit it again
        shown = one.rank("q0", WORLD.a["q0"], WORLD.b["q0"], unit="new", wait=True)
        assert shown.fallback is None
        one.store.flush()
        designs = {row.bias for row in one.store.designs(range(1, 1000))}
        assert designs == {
            1,
            one.state.policy.bias.id,
        }  # queries asked before and after have a design for each theta
        other.stop()
        wait_until(lambda: one.stopped)
