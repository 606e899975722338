"""Click behaviours to simulate."""

from ranktrial.users.behaviour import User, cascade, position_based, rank_decay, trust_bias
from ranktrial.users.crowds import Comparing, Crowd, Users, comparing, crowd
from ranktrial.users.devices import mixed_devices, two_devices

__all__ = [
    "Comparing",
    "Crowd",
    "User",
    "Users",
    "cascade",
    "comparing",
    "crowd",
    "mixed_devices",
    "position_based",
    "rank_decay",
    "trust_bias",
    "two_devices",
]
