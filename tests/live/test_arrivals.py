"""Numbers by arrival, against a dictionary, with going back in between."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.live.arrivals import Arrivals


@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_those_of_a_dictionary_that_is_made_anew(seed: int) -> None:
    random, seen = np.random.default_rng(seed), Arrivals()
    keys, ends = np.empty(0, np.int64), [0]  # all that has come, and where one may go back to
    units = [0]
    for _ in range(60):
        back = len(ends) - 1 if random.random() < 0.6 else int(random.integers(max(len(ends) - 3, 0), len(ends)))
        keys, ends, units = keys[: ends[back]], ends[: back + 1], units[: back + 1]
        more = random.integers(-(10 ** int(random.integers(1, 4))), 2**62 if random.random() < 0.2 else 500, 40)
        seen.back_to(units[-1])
        number = seen.come(more, np.arange(len(keys), len(keys) + len(more)))
        keys = np.append(keys, more)
        numbers: dict[int, int] = {}
        first = []
        for at, key in enumerate(keys.tolist()):
            if key not in numbers:
                numbers[key] = len(numbers)
                first.append(at)
        assert number.tolist() == [numbers[key] for key in more.tolist()]
        assert seen.count == len(numbers)
        assert seen.first[: seen.count].tolist() == first
        ends.append(len(keys))
        units.append(seen.count)
    assert seen.count > 100
