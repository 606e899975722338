"""Text of value objects, such as ``Probabilistic(tau=4)``: one spelling of equal values, and reading it back."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def spelled_value(value: Any) -> str:
    """One spelling of equal values: 1.0 as 1, lists as tuples, NumPy's numbers as Python's.

    >>> spelled_value(1.0), spelled_value([1]), spelled_value("7d")
    ('1', '(1,)', '"7d"')
    """
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"({', '.join(map(spelled_value, value))}{',' if len(value) == 1 else ''})"
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)


def spelled_object(thing: Any) -> str:
    """Text of a dataclass: its name, and those options that are not as by default."""
    shown = []
    for f in fields(thing):
        value = getattr(thing, f.name)
        text = spelled_value(bool(value) if isinstance(f.default, bool) and value in (0, 1) else value)
        if f.metadata.get("spelled") or text != spelled_value(f.default):
            shown.append(f"{f.name}={text}")
    return f"{type(thing).__name__}({', '.join(shown)})"


def spelled_out(thing: Any) -> str:
    """Text of a dataclass with every option written, whatever the defaults will be."""
    options = ", ".join(f"{f.name}={spelled_value(getattr(thing, f.name))}" for f in fields(thing))
    return f"{type(thing).__name__}({options})"


def parsed_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Name and options of a text such as ``Probabilistic(tau=4)``; None if it is not one.

    >>> parsed_call("Probabilistic( tau = 4.0 )"), parsed_call("AB"), parsed_call("tau=4")
    (('Probabilistic', {'tau': 4.0}), ('AB', {}), None)
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            return call.id, {}
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        keywords = [keyword.arg for keyword in call.keywords]
        if None in keywords or len(set(keywords)) < len(keywords):
            return None
        return call.func.id, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        return None


def parsed_object(
    text: Any, find: Callable[[str], type[T] | None], names: Iterable[str], *, what: str, example: str, **more: Any
) -> T:
    """The value object that a text names, ``what`` such as "a method", with ``more`` options than the text has."""
    known = ", ".join(names)
    called = parsed_call(text) if isinstance(text, str) else None
    if called is None:
        raise ValueError(f"{text!r} is not {what}; write one like {example}. Known: {known}")
    name, options = called
    kind = find(name)
    if kind is None:
        raise ValueError(f"no {what.split()[-1]} {name!r}; known: {known}")
    allowed = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for option in {**options, **more}:
        if option not in allowed:
            raise ValueError(f"{name} has no option {option!r}; options: {', '.join(allowed) or 'none'}")
    try:
        return kind(**{**options, **more})
    except TypeError as problem:  # an option of the wrong kind, or one missing that has no default
        raise ValueError(f"{text!r} is not {what}: {problem}") from None
