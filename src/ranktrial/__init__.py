"""Which of two rankers gets more clicks, by how much and how surely, from few impressions.

What most people need is here by name; everything else is one level down:

    data           what is ranked: LETOR files, TREC runs and judgements, synthetic sets, linear rankers
    users          how people click: behaviours to simulate
    position_bias  who is seen: estimators of position bias and relevance, what a log can tell of them
    rankings       what may be shown: pairs of rankers, distributions over rankings, what a click is worth
    design         what should be shown: the policy of least variance, in closed form or as a network
    methods        how to compare: A/B, interleaving, counterfactual evaluation, LogOpt; one file per method
    inference      how sure: the log, the estimate, intervals, plans
    study          the paper's experiments: plan, run, figures, claims
    live           real traffic: Trial, its store, guardrails, the HTTP service
    logs           logs of all kinds: export, estimates where the data is, other people's logs, what is wrong with one
    charts         what people see: charts, reports as one file, the live page
    client         a page's side of the HTTP service, with nothing but the standard library
    testing        checks that a method of your own must pass

A trial on live traffic:

>>> from ranktrial import LogOpt, Trial
>>> trial = Trial.create("shoes.db", method=LogOpt(), k=2)
>>> shown = trial.rank("red shoes", a=["sku-1", "sku-2"], b=["sku-2", "sku-3"], unit="user-17")
>>> trial.click(shown.id, shown.ranking[0]).outcome
<ClickOutcome.COUNTED: 'counted'>
>>> trial.report().verdict
'Too early to say after 1 impression and 1 click.'
>>> trial.close()

A log that is there already:

>>> from ranktrial import Log, estimate
>>> search = {"query": "red shoes", "a": ["sku-1", "sku-2"], "b": ["sku-2", "sku-3"], "shown": ["sku-1", "sku-2"]}
>>> log = Log.from_records([{**search, "clicked": ["sku-1"]}, {**search, "clicked": []}], k=2)
>>> print(estimate(log, theta=[1.0, 0.5], estimator="ips").delta)
1.0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ranktrial.data import read_qrels, read_run
    from ranktrial.inference import Estimate, Log, estimate, estimate_ab, fit_position_bias, plan
    from ranktrial.interval import Interval
    from ranktrial.live import Trial
    from ranktrial.methods import (
        AB,
        Balanced,
        Counterfactual,
        LogOpt,
        LogOptNetwork,
        Optimized,
        Probabilistic,
        TeamDraft,
        parse_method,
    )
    from ranktrial.position_bias import PositionBias
    from ranktrial.rankings import Pair
    from ranktrial.users import position_based

__version__ = "0.2.0"

# Found when asked for, so that importing a part of the package does not load all of it.
_HOMES = {
    "data": ("read_qrels", "read_run"),
    "inference": ("Estimate", "Log", "estimate", "estimate_ab", "fit_position_bias", "plan"),
    "interval": ("Interval",),
    "live": ("Trial",),
    "methods": (
        "AB", "Balanced", "Counterfactual", "LogOpt", "LogOptNetwork", "Optimized", "Probabilistic", "TeamDraft",
        "parse_method",
    ),
    "position_bias": ("PositionBias",),
    "rankings": ("Pair",),
    "users": ("position_based",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AB",
    "Balanced",
    "Counterfactual",
    "Estimate",
    "Interval",
    "Log",
    "LogOpt",
    "LogOptNetwork",
    "Optimized",
    "Pair",
    "PositionBias",
    "Probabilistic",
    "TeamDraft",
    "Trial",
    "estimate",
    "estimate_ab",
    "fit_position_bias",
    "parse_method",
    "plan",
    "position_based",
    "read_qrels",
    "read_run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ranktrial' has no attribute {name!r}")
    return getattr(import_module(f"ranktrial.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
