from __future__ import annotations

import numpy as np
import pytest

from ranktrial.methods import AB, Optimized, Probabilistic, TeamDraft, parse_method


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (AB(), "AB()"),
        (AB(split=0.3, estimate="means"), 'AB(split=0.3, estimate="means")'),
        (TeamDraft(), "TeamDraft()"),
        (Probabilistic(), "Probabilistic(tau=4)"),
        (Probabilistic(tau=2.5), "Probabilistic(tau=2.5)"),
        (Probabilistic(tau=np.int64(3)), "Probabilistic(tau=3)"),  # type: ignore[arg-type]
        (Optimized(), 'Optimized(credit="inverse")'),
    ],
)
def test_one_spelling_everywhere(method: object, text: str) -> None:
    assert str(method) == text
    assert parse_method(text) == method


def test_a_bare_name_will_do() -> None:
    assert parse_method(" TeamDraft ") == TeamDraft()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Teamdraft()", "no method 'Teamdraft'; known: AB, Balanced"),
        ("AB(ratio=2)", "AB has no option 'ratio'; options: split, estimate"),
        ("AB(0.5)", "is not a method"),
        ("AB(split=", "is not a method"),
        ("__import__('os').system('true')", "is not a method"),
        ("AB(split=open('x'))", "is not a method"),
        ("AB(split=2)", "split is 2, must be strictly between 0 and 1"),
        ("AB(split=None)", "split is None, must be a number"),
        ("Probabilistic(tau=True)", "tau is True, must be a number"),
        ('Probabilistic(tau="x")', "tau is 'x', must be a number"),
        ("AB(split=.3, split=.4)", "is not a method"),
        ("AB(**{})", "is not a method"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_method(text)
