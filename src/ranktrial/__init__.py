"""Comparison of two search rankers by clicks: which gets more, by how much and how surely, from few searches.

The common names are imported from here; everything else is one level down:

    users          simulated users: click behaviours
    position_bias  click models: estimators of position bias and relevance, identifiability
    rankings       rankings: pairs of rankers, distributions over rankings, propensities, value of a click
    design         logging policies: the distribution of least variance, in closed form
    methods        comparison methods: A/B, interleaving, counterfactual evaluation, LogOpt; one file per method
    log            logs of searches: the arrays that everything is computed from
    analysis       statistics: estimators, intervals, guardrails, the decision, plans
    report         reports: schema, charts, pages, files
    store          stores of live trials: SQLite and PostgreSQL
    trial          live traffic: Trial
    service        the HTTP service
    formats        log files of others and our own, data frames: export, import, diagnosis, estimates in SQL
    trec           TREC runs and judgements
    client         HTTP client for a search page, with nothing but the standard library
    testing        checks that a method of your own must pass
    paper          the paper reproduced: Appendix A, the trained network, data sets, rankers, the study

A trial on live traffic:

>>> from ranktrial import LogOpt, Trial
>>> trial = Trial.create("shoes.db", method=LogOpt(), k=2)
>>> shown = trial.rank("red shoes", a=["sku-1", "sku-2"], b=["sku-2", "sku-3"], unit="user-17")
>>> trial.click(shown.id, shown.ranking[0]).outcome
<ClickOutcome.COUNTED: 'counted'>
>>> trial.report().verdict
'Too early to say after 1 search and 1 click.'
>>> trial.close()

A shop decides by its orders, and watches that no more searches go without a click:

>>> from ranktrial import Abandonment, Orders
>>> shop = Trial.create("shop.db", metrics=[Orders(window="7d", role="primary"), Abandonment(role="guard", tolerance=0.02)])
>>> shop.config.measured[0]
Orders(window="7d", role="primary")
>>> shop.close()

An existing log:

>>> from ranktrial import IPS, Log, estimate
>>> search = {"query": "red shoes", "a": ["sku-1", "sku-2"], "b": ["sku-2", "sku-3"], "shown": ["sku-1", "sku-2"]}
>>> log = Log.from_records([{**search, "clicked": ["sku-1"]}, {**search, "clicked": []}], k=2)
>>> print(estimate(log, theta=[1.0, 0.5], estimator=IPS()).delta)
1.0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktrial.analysis import (
        IPS,
        Adjusted,
        Direct,
        DoublyRobust,
        Estimate,
        Means,
        RankAware,
        decide,
        estimate,
        estimate_ab,
        fit_position_bias,
        plan,
    )
    from ranktrial.formats import pair_from_frame, read_log, to_frame
    from ranktrial.interval import Interval
    from ranktrial.log import Log
    from ranktrial.methods import (
        AB,
        Balanced,
        Counterfactual,
        LogOpt,
        Optimized,
        Probabilistic,
        TeamDraft,
        parse_method,
    )
    from ranktrial.metrics import (
        Abandonment,
        Carts,
        Clicks,
        Dwell,
        Events,
        FirstClickRank,
        Orders,
        Reformulation,
        Revenue,
        SessionSuccess,
        TimeToFirstClick,
    )
    from ranktrial.paper.logopt_network import LogOptNetwork
    from ranktrial.position_bias import PositionBias
    from ranktrial.rankings import Pair
    from ranktrial.trec import read_qrels, read_run
    from ranktrial.trial import Trial
    from ranktrial.users import position_based

__version__ = "0.2.0"

# Found when asked for, so that importing a part of the package does not load all of it.
_HOMES = {
    "analysis": (
        "IPS", "Adjusted", "Direct", "DoublyRobust", "Estimate", "Means", "RankAware", "decide", "estimate", "estimate_ab",
        "fit_position_bias", "plan",
    ),
    "formats": ("pair_from_frame", "read_log", "to_frame"),
    "interval": ("Interval",),
    "log": ("Log",),
    "methods": (
        "AB", "Balanced", "Counterfactual", "LogOpt", "Optimized", "Probabilistic", "TeamDraft", "parse_method",
    ),
    "metrics": (
        "Abandonment", "Carts", "Clicks", "Dwell", "Events", "FirstClickRank", "Orders", "Reformulation", "Revenue",
        "SessionSuccess", "TimeToFirstClick",
    ),
    "paper.logopt_network": ("LogOptNetwork",),
    "position_bias": ("PositionBias",),
    "rankings": ("Pair",),
    "trec": ("read_qrels", "read_run"),
    "trial": ("Trial",),
    "users": ("position_based",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AB", "IPS", "Abandonment", "Adjusted", "Balanced", "Carts", "Clicks", "Counterfactual", "Direct", "DoublyRobust",
    "Dwell", "Estimate", "Events", "FirstClickRank", "Interval", "Log", "LogOpt", "LogOptNetwork", "Means",
    "Optimized", "Orders", "Pair", "PositionBias", "Probabilistic", "RankAware", "Reformulation", "Revenue",
    "SessionSuccess", "TeamDraft", "TimeToFirstClick", "Trial", "decide", "estimate", "estimate_ab",
    "fit_position_bias", "pair_from_frame", "parse_method", "plan", "position_based", "read_log", "read_qrels",
    "read_run", "to_frame",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ranktrial' has no attribute {name!r}")
    return getattr(import_module(f"ranktrial.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
