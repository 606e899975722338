"""Simulated logs of several segments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ranktrial.arrays import IntArray, offsets_of
from ranktrial.log import sources
from ranktrial.log.log import Log
from ranktrial.rankings import Mixture, Pair, PlackettLuce, draw_impressions
from ranktrial.seeds import Seed, children, generator
from ranktrial.segments import Segments
from ranktrial.users import Users


def simulated_by_segment(
    pair: Pair,
    policies: Mapping[str, Mixture | PlackettLuce],
    users: Mapping[str, Users],
    impressions: Mapping[str, int],
    *,
    attribute: str = "device",
    asked: Mapping[str, IntArray] | None = None,
    seed: Seed,
) -> Log:
    """Users of several segments, by the value of one attribute, who come in random order.

    Args:
        pair: The two rankers.
        policies: What decides about the impressions of each segment; one object for several shares its designs.
        users: Who clicks in each.
        impressions: How many of each.
        attribute: Name of the attribute.
        asked: Query of each impression of a segment; drawn uniformly by default.
        seed: An integer or a SeedSequence; the same seed gives the same log.

    >>> from ranktrial import AB
    >>> from ranktrial.users import two_devices
    >>> pair = Pair.from_lists([["x", "y", "z"]], [["z", "y", "x"]], k=3)
    >>> users = two_devices([0.5, 0.1, 0.3], k=3, visible=1)
    >>> both, sizes = dict.fromkeys(users, AB().policy(pair)), {"phone": 300, "desktop": 700}
    >>> log = simulated_by_segment(pair, both, users, sizes, seed=1)
    >>> log, [int(n) for n in np.bincount(log.levels("device"))]  # of "other", desktop and phone
    (Log(impressions=1,000, clicks=..., queries=1, designs=1, k=3), [0, 700, 300])
    """
    names = sorted(users)
    attributes = Segments.of({attribute: names})
    distinct = list({id(policies[name]): policies[name] for name in names}.values())
    known = sources.checked_policies(distinct, pair)
    drawn = [
        draw_impressions(
            [policies[name]], users[name], [impressions[name]], seed=child,
            asked=None if asked is None else [asked[name]],
        )
        for name, child in zip(names, children(seed, len(names)))
    ]  # fmt: skip
    sizes = [impressions[name] for name in names]
    versions = np.repeat([next(i for i, one in enumerate(known) if one is policies[name]) for name in names], sizes)
    rows = None
    if all(isinstance(policy, Mixture) for policy in known):
        starts = offsets_of([len(policy.weights) for policy in known if isinstance(policy, Mixture)])
        rows = np.concatenate([one.rows for one in drawn if one.rows is not None]) + starts[versions]
    order = generator(children(seed, len(names) + 1)[-1]).permutation(len(versions))
    queries, rankings, clicks = (
        np.concatenate([getattr(one, what) for one in drawn])[order] for what in ("queries", "rankings", "clicks")
    )
    arrays = sources.of_pair(
        pair, known, versions[order], queries, rankings, clicks, None, None, None if rows is None else rows[order]
    )
    segment = np.repeat([attributes.code({attribute: name}).code for name in names], sizes)[order]
    return Log(**arrays, attributes=attributes, segment=segment)
