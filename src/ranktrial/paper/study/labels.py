"""Labels and styles of methods in figures and tables, by the role that each plays in the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache

from ranktrial.methods import (
    AB,
    Balanced,
    Counterfactual,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    parse_method,
)
from ranktrial.methods.click_model import ROBUST
from ranktrial.paper.logopt_network import PAPERS_STEPS, LogOptNetwork
from ranktrial.report.theme import BLUE, DASHES, GREEN, INK, OLIVE, ORANGE, PURPLE, SKY, STYLES, VERMILLION, Style

SOLID, DASHED, DOTTED, MIXED = DASHES

# The part a method plays in the paper's comparisons: its label and how it is drawn. Kin share a colour.
ROLES: dict[str, tuple[str, Style]] = {
    "ab": ("A/B, the paper's x", Style(INK, SOLID, "circle")),
    "ab-means": ("A/B, difference in means", Style(INK, DASHED, "square")),
    "ab-doubly-robust-known": ("A/B, doubly robust, bias known", Style(INK, DOTTED, "triangle-down")),
    "ab-doubly-robust-estimated": ("A/B, doubly robust, bias estimated", Style(SKY, DOTTED, "triangle-down")),
    "ab-rank-aware-known": ("A/B, rank-aware, bias known", Style(INK, DOTTED, "diamond")),
    "ab-rank-aware-estimated": ("A/B, rank-aware, bias estimated", Style(SKY, MIXED, "diamond")),
    "team-draft": ("Team-draft", Style(VERMILLION, SOLID, "triangle-up")),
    "probabilistic": ("Probabilistic", Style(ORANGE, DASHED, "triangle-down")),
    "optimized": ("Optimized", Style(PURPLE, MIXED, "diamond")),
    "balanced": ("Balanced", Style(OLIVE, DOTTED, "cross")),
    "published-known": ("LogOpt as published, bias known", Style(SKY, SOLID, "circle")),
    "published-estimated": ("LogOpt as published, bias estimated", Style(SKY, DASHED, "square")),
    "network-known": ("LogOpt network, bias known", Style(BLUE, SOLID, "diamond")),
    "network-estimated": ("LogOpt network, bias estimated", Style(BLUE, DASHED, "cross")),
    "oracle": ("Oracle", Style(PURPLE, DOTTED, "triangle-left")),
    "uniform": ("Uniform logging", Style(VERMILLION, DOTTED, "triangle-right")),
    "ab-logging": ("A/B logging", Style(INK, MIXED, "triangle-up")),
    "lambda": ("Plackett-Luce on |lambda|", Style(ORANGE, SOLID, "cross")),
    "closed-form": ("Closed form", Style(GREEN, SOLID, "diamond")),
    "adaptive-known": ("LogOpt closed form, bias known", Style(GREEN, MIXED, "square")),
    "adaptive-estimated": ("LogOpt closed form, bias estimated", Style(OLIVE, MIXED, "triangle-right")),
    "doubly-robust-known": ("Closed form, doubly robust, bias known", Style(GREEN, DASHED, "circle")),
    "doubly-robust-estimated": ("Closed form, doubly robust, bias estimated", Style(OLIVE, DASHED, "cross")),
    "rank-aware-known": ("Closed form, rank-aware, bias known", Style(GREEN, DOTTED, "triangle-up")),
    "rank-aware-estimated": ("Closed form, rank-aware, bias estimated", Style(OLIVE, SOLID, "triangle-left")),
    "budget-known": ("LogOpt with a budget of clicks, bias known", Style(PURPLE, SOLID, "square")),
    "budget-estimated": ("LogOpt with a budget of clicks, bias estimated", Style(PURPLE, DASHED, "circle")),
}
INTERLEAVING = ("team-draft", "probabilistic", "optimized", "balanced")


PUBLISHED = {"click_model": "regression-em", "gradient": "paper", "inputs": "both"}  # all three at once
COSTS = {"relevance": "estimated", "loss": None, "keep": 0, "floor": 0, "holdback": 0}  # of LogOpt, whatever it costs
LOGGING = {"uniform": "uniform", "ab": "ab-logging", "lambda": "lambda", "optimal": "closed-form"}


def part_of(method: Method) -> tuple[str, tuple[str, ...]]:
    """The part that a method plays in the study, and the options that it tells already: a label spells out the others."""
    if isinstance(method, LogOptNetwork):
        return _part_of_network(method)
    if isinstance(method, LogOpt):
        cheap = [name for name, value in COSTS.items() if getattr(method, name) == value]
        costs = tuple(COSTS) if len(cheap) == len(COSTS) else ()
        if method.loss is not None:
            return f"budget-{method.bias}", ("bias",)
        kind = method.estimate if method.estimate in ROBUST else "adaptive"
        return f"{kind}-{method.bias}", ("bias", "estimate", *costs)
    if isinstance(method, AB):
        by_clicks = {"paper": "ab", "means": "ab-means"}
        part = (
            f"ab-{method.estimate}-{method.bias}" if method.estimate in ROBUST else by_clicks.get(method.estimate, "")
        )
        return part, ("estimate", "bias")
    if isinstance(method, Counterfactual):
        return LOGGING[method.logging], ("logging",)
    interleaving: dict[type[Method], tuple[str, tuple[str, ...]]] = {
        TeamDraft: ("team-draft", ()),
        Probabilistic: ("probabilistic", ("tau",)),
        Optimized: ("optimized", ("credit",)),
        Balanced: ("balanced", ()),
    }
    return interleaving.get(type(method), ("", ()))


def _part_of_network(method: LogOptNetwork) -> tuple[str, tuple[str, ...]]:
    # More work than the paper's changes no name; less does, lest its network look worse than it is.
    enough = {"steps": method.steps >= PAPERS_STEPS, "samples": method.rankings_a_step >= method.usual_samples}
    in_label = ("bias", *(name for name, so in enough.items() if so))
    if method.relevance == "true":
        return "oracle", (*in_label, "relevance", "schedule")
    if all(getattr(method, name) == value for name, value in PUBLISHED.items()):
        return f"published-{method.bias}", (*in_label, *PUBLISHED)
    return f"network-{method.bias}", in_label


@cache
def role(text: str) -> str | None:
    """The part a method plays in the study; None for one that plays none, or is not a method.

    >>> role("LogOptNetwork(steps=50)"), role("New()")
    ('network-known', None)
    """
    try:
        part, _ = part_of(parse_method(text))
    except ValueError:
        return None
    return part if part in ROLES else None


def labels(texts: Sequence[str]) -> dict[str, str]:
    """A label for each method, no two alike: by its role, with options that the role leaves open; else as it is written.

    >>> labels(["AB()", 'AB(split=0.2, estimate="paper")', "New()"])
    {'AB()': 'A/B, difference in means', 'AB(split=0.2, estimate="paper")': "A/B, the paper's x, split=0.2", 'New()': 'New()'}
    """
    found = {text: _label(text) for text in texts}
    taken = list(found.values())
    return {text: label if taken.count(label) == 1 else text for text, label in found.items()}


def _label(text: str) -> str:
    part = role(text)
    if part is None:
        return text
    method = parse_method(text)
    _, in_label = part_of(method)
    more = [
        f"{f.name}={getattr(method, f.name)}"
        for f in fields(method)
        if f.name not in in_label and getattr(method, f.name) != f.default
    ]
    return ", ".join([ROLES[part][0], *more])


def styles(texts: Sequence[str]) -> dict[str, Style]:
    """A style for each method, no two alike as long as there are enough: its role's, if it is the first in that role."""
    chosen: dict[str, Style] = {}
    for text in texts:
        part = role(text)
        if part is not None and ROLES[part][1] not in chosen.values():
            chosen[text] = ROLES[part][1]
    free = [
        style for style in STYLES if (style.colour, style.dash) not in {(s.colour, s.dash) for s in chosen.values()}
    ]
    rest = [text for text in texts if text not in chosen]
    return chosen | {text: free[i % len(free)] for i, text in enumerate(rest)}
