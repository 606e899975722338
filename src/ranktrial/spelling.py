"""Text of value objects, such as ``Probabilistic(tau=4)``: one spelling of equal values, and reading it back."""

from __future__ import annotations

import ast
import json
from typing import Any

import numpy as np


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
