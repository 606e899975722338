"""Click behaviours to simulate."""

from ranktrial.users.behaviour import User, cascade, position_based, rank_decay, trust_bias

__all__ = [
    "User",
    "cascade",
    "position_based",
    "rank_decay",
    "trust_bias",
]
