"""What is a method? A value object that prints as it is written and parses back from that text.

To add one, write a small file with a frozen dataclass that derives from ``Method`` and defines ``displays``; the rest
(moments, placement, simulation, parsing) follows. Override ``simulate`` where displays are too many to list.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray
from ranktrial.methods.displays import Displays
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Moments, Pair
from ranktrial.seeds import Seed
from ranktrial.users import User


def spelled(default: Any) -> Any:
    """A dataclass field that a method's text always shows, even at its default."""
    return field(default=default, metadata={"spelled": True})


@dataclass(frozen=True, repr=False)
class Method:
    """A way to compare two rankers on live traffic."""

    registry: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls) -> None:
        Method.registry[cls.__name__] = cls

    def displays(self, pair: Pair) -> Displays:
        """Every display of every query with its probability and the value of clicks on it."""
        raise NotImplementedError

    def moments(self, pair: Pair, user: User) -> Moments:
        """Exact mean and variance of one impression's value under a user."""
        return self.displays(pair).moments(user)

    def placement(self, pair: Pair) -> FloatArray:
        """P(document at rank) as a (documents, k) matrix, exactly."""
        return self.displays(pair).mixture.placement()

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        """Run the method on simulated users; the estimate and its errors at each checkpoint.

        ``shortcut=False`` goes impression by impression even where the same law can be drawn at once.
        """
        return self.displays(pair).simulate(user, checkpoints, seed=seed)

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={_text(getattr(self, f.name))}"
            for f in fields(self)
            if f.metadata.get("spelled") or getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _text(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)


def parse_method(text: str) -> Method:
    """The method a text names.

    >>> parse_method("Probabilistic(tau=3)")
    Probabilistic(tau=3)
    """
    known = ", ".join(sorted(Method.registry))
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(call, [], [])
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        name = call.func.id
        keywords = [keyword.arg for keyword in call.keywords]
        if None in keywords or len(set(keywords)) < len(keywords):
            raise ValueError
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(f"{text!r} is not a method; write one like Probabilistic(tau=4). Known: {known}") from None
    if name not in Method.registry:
        raise ValueError(f"no method {name!r}; known: {known}")
    method = Method.registry[name]
    for option in options:
        if option not in {f.name for f in fields(method)}:
            allowed = ", ".join(f.name for f in fields(method)) or "none"
            raise ValueError(f"{name} has no option {option!r}; options: {allowed}")
    return method(**options)
