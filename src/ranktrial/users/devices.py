"""Visitors of two devices: a phone shows few results at once, a desktop ten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.users.behaviour import User, position_based, rank_decay


def two_devices(
    zeta: ArrayLike, k: int = 10, *, on_phones: ArrayLike | None = None, visible: int = 4, eta: float = 0.7
) -> dict[str, User]:
    """Position-based visitors on phones, who see the first results alone, and on desktops, by device.

    Args:
        zeta: Relevance of each document to visitors on desktops.
        k: Ranks.
        on_phones: Relevance to those on phones; the same by default.
        visible: Results that a phone shows.
        eta: Examination falls with rank^-eta on both.

    >>> users = two_devices([0.5, 0.2, 0.1], k=3, visible=2, eta=1)
    >>> users["phone"].slope, users["desktop"].slope.round(2)
    (array([1. , 0.5, 0. ]), array([1.  , 0.5 , 0.33]))
    """
    checks.whole("visible", visible, 1, k)
    theta = rank_decay(k, eta)
    phone = np.where(np.arange(k) < visible, theta, 0.0)
    return {
        "phone": position_based(zeta if on_phones is None else on_phones, phone),
        "desktop": position_based(zeta, theta),
    }


def mixed_devices(zeta: ArrayLike, k: int = 10, *, phones: float = 0.5, visible: int = 4, eta: float = 0.7) -> User:
    """Traffic of both devices as one user, for whom every method has exact moments; both like the same documents.

    Whoever has read the last result that a phone shows reads on if the device is a desktop, whatever was clicked above.

    Args:
        zeta: Relevance of each document to all visitors.
        k: Ranks.
        phones: Share of searches on phones.
        visible: Results that a phone shows.
        eta: Examination falls with rank^-eta on both.

    >>> from ranktrial.rankings import expected_clicks
    >>> expected_clicks(np.array([[0, 1]], np.int32), mixed_devices([0.4, 0.2], k=2, phones=0.75, visible=1, eta=1))
    array([[0.4  , 0.025]])
    """
    checks.between("phones", phones, 0, 1)
    desktop = two_devices(zeta, k, visible=visible, eta=eta)["desktop"]
    stay = np.where((np.arange(1, k + 1) == visible) & (visible < k), 1.0 - phones, 1.0)
    return replace(desktop, name="two devices", stay_after_click=stay, stay_after_skip=stay)
