"""What may be shown: ranked lists, pairs of rankers, and distributions over rankings with exact placement and exposure."""

from ranktrial.rankings.lists import Pair, Rankings, expected_clicks, exposure_of, rank_by_score, true_ctr
from ranktrial.rankings.mixture import Mixture, Moments

__all__ = ["Mixture", "Moments", "Pair", "Rankings", "expected_clicks", "exposure_of", "rank_by_score", "true_ctr"]
