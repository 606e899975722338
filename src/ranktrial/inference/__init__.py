"""How sure: estimates from logs, with what tells whether to trust them."""

from ranktrial.inference.ips import ClickLog, Estimate, estimate_ips

__all__ = ["ClickLog", "Estimate", "estimate_ips"]
