"""How sure: estimates from logs, intervals that stay valid when people peek."""

from ranktrial.inference.intervals import Band, asymptotic_radius, asymptotic_sequence, betting_sequence, fixed_interval
from ranktrial.inference.ips import ClickLog, Estimate, estimate_ips

__all__ = [
    "Band",
    "ClickLog",
    "Estimate",
    "asymptotic_radius",
    "asymptotic_sequence",
    "betting_sequence",
    "estimate_ips",
    "fixed_interval",
]
