"""How people click: behaviours to simulate, and position-bias models to fit."""

from ranktrial.users.behaviour import User, cascade, position_based, position_bias, trust_bias

__all__ = ["User", "cascade", "position_based", "position_bias", "trust_bias"]
