"""Logs of searches: rankings shown, their designs and clicks, whoever recorded them."""

from ranktrial.log.log import Log
from ranktrial.log.rules import LeftOut, Rules, apply_rules
from ranktrial.log.units import UnitSums

__all__ = ["LeftOut", "Log", "Rules", "UnitSums", "apply_rules"]
