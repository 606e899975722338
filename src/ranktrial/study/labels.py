"""What do readers call a method, and which part does it play? A short label, a role and a style for the text that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from ranktrial.charts.theme import BLUE, DASHES, GREEN, INK, OLIVE, ORANGE, PURPLE, SKY, STYLES, VERMILLION, Style
from ranktrial.methods import Method, parse_method

SOLID, DASHED, DOTTED, MIXED = DASHES

# The part a method plays in the paper's comparisons: its label and how it is drawn. Kin share a colour.
ROLES: dict[str, tuple[str, Style]] = {
    "ab": ("A/B, the paper's x", Style(INK, SOLID, "circle")),
    "ab-means": ("A/B, difference in means", Style(INK, DASHED, "square")),
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
}
INTERLEAVING = ("team-draft", "probabilistic", "optimized", "balanced")
# What a role takes care of; options beyond these are spelled out in the label.
_SAID = {
    "AB": ("estimate",),
    "Probabilistic": ("tau",),
    "Optimized": ("credit",),
    "Counterfactual": ("logging",),
    "LogOpt": ("policy", "bias"),
}
# Published, not merely with the network: these three at once.
_PUBLISHED = {"click_model": "regression-em", "gradient": "paper", "inputs": "both"}
ROBUST = ("doubly-robust", "rank-aware")
# How much work is put in changes no name.
_EFFORT = ("steps", "samples")


def role(text: str) -> str | None:
    """The part a method plays; None for one we do not know.

    >>> role('LogOpt(policy="network", bias="known", steps=50)'), role("New()")
    ('network-known', None)
    """
    try:
        return _role(parse_method(text))
    except ValueError:
        return None


def _role(method: Method) -> str | None:
    def option(name: str, default: str = "") -> str:
        return str(getattr(method, name, default))

    bias = "estimated" if option("bias") == "estimated" else "known"
    match type(method).__name__:
        case "AB":
            return "ab-means" if option("estimate") == "means" else "ab"
        case "TeamDraft":
            return "team-draft"
        case "Probabilistic" | "Optimized" | "Balanced" as name:
            return name.lower()
        case "Counterfactual":
            by_logging = {"uniform": "uniform", "ab": "ab-logging", "lambda": "lambda", "optimal": "closed-form"}
            return by_logging.get(option("logging"))
        case "LogOpt" if option("policy") == "network":
            if option("relevance") == "true":
                return "oracle"
            published = all(option(name) == value for name, value in _PUBLISHED.items())
            return f"{'published' if published else 'network'}-{bias}"
        case "LogOpt":
            estimate = option("estimate")
            return f"{estimate if estimate in ROBUST else 'adaptive'}-{bias}"
    return None


def labels(texts: Sequence[str]) -> dict[str, str]:
    """A label for each method, no two alike: by its role, with options that the role leaves open; else as it is written.

    >>> labels(["AB()", "AB(split=0.2)", "New()"])
    {'AB()': "A/B, the paper's x", 'AB(split=0.2)': "A/B, the paper's x, split=0.2", 'New()': 'New()'}
    """
    found = {text: _label(text) for text in texts}
    taken = list(found.values())
    return {text: label if taken.count(label) == 1 else text for text, label in found.items()}


def _label(text: str) -> str:
    part = role(text)
    if part is None:
        return text
    method = parse_method(text)
    said = {*_SAID.get(type(method).__name__, ()), *_EFFORT}
    if part.startswith("published"):
        said |= set(_PUBLISHED)
    if part == "oracle":
        said |= {"relevance", "schedule"}
    if part.startswith(ROBUST):
        said |= {"estimate"}
    more = [
        f"{f.name}={getattr(method, f.name)}"
        for f in fields(method)
        if f.name not in said and getattr(method, f.name) != f.default
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
