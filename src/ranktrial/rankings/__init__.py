"""Ranked lists, pairs of rankers, and distributions over rankings with exact placement and exposure."""

from ranktrial.rankings.lists import (
    Pair,
    Rankings,
    expected_clicks,
    exposure_of,
    rank_by_score,
    rank_inputs,
)
from ranktrial.rankings.mixture import Mixture, Moments
from ranktrial.rankings.plackett_luce import PlackettLuce
from ranktrial.rankings.propensity import RequirementError, ips_weights
from ranktrial.rankings.traffic import draw_impressions, show_counts
from ranktrial.rankings.values import Affine, affine_values

__all__ = [
    "Affine",
    "Mixture",
    "Moments",
    "Pair",
    "PlackettLuce",
    "Rankings",
    "RequirementError",
    "affine_values",
    "draw_impressions",
    "expected_clicks",
    "exposure_of",
    "ips_weights",
    "rank_by_score",
    "rank_inputs",
    "show_counts",
]
