from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (AB(), "AB()"),
        (AB(split=0.3, estimate="paper"), 'AB(split=0.3, estimate="paper")'),
        (TeamDraft(), "TeamDraft()"),
        (Probabilistic(), "Probabilistic(tau=4)"),
        (Probabilistic(tau=2.5), "Probabilistic(tau=2.5)"),
        (Probabilistic(tau=np.int64(3)), "Probabilistic(tau=3)"),  # type: ignore[arg-type]
        (Optimized(), 'Optimized(credit="inverse")'),
        (Counterfactual(clip=1_000_000.0), 'Counterfactual(logging="uniform", clip=1000000)'),
        (LogOpt(schedule=()), "LogOpt(schedule=())"),
        (LogOpt(schedule=(500,)), "LogOpt(schedule=(500,))"),
    ],
)
def test_one_spelling_everywhere(method: object, text: str) -> None:
    assert str(method) == text
    assert parse_method(text) == method


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (["LogOpt( )", "LogOpt()", "LogOpt", " LogOpt\n", "LogOpt(floor=.0)", "LogOpt(holdback=[.5, 1e-1])"], LogOpt()),
        (["AB( split = .5 )", "AB(split=5e-1)", 'AB(estimate="means")'], AB(split=np.float64(0.5))),
        (["LogOpt(floor=1)", "LogOpt(floor = 1.0)"], LogOpt(floor=np.float32(1))),  # type: ignore[arg-type]
        (
            ["LogOpt(schedule=[10, 100])", "LogOpt(schedule=(10,100,))", "LogOpt(schedule=(10.0, 1e2))"],
            LogOpt(schedule=[np.int64(10), 100]),  # type: ignore[arg-type]
        ),
        (["AB(estimate='paper', split=.25)", 'AB(split=0.25,estimate="paper")'], AB(0.25, "paper")),
        (["Counterfactual(clip=1e6)", "Counterfactual(clip=1000000)"], Counterfactual(clip=1e6)),
    ],
)
def test_equal_methods_have_one_text_however_they_are_written(texts: list[str], value: Method) -> None:
    for text in texts:
        parsed = parse_method(text)
        assert (parsed, hash(parsed), str(parsed)) == (value, hash(value), str(value))


positive = st.floats(0, 1e12, exclude_min=True)
share = st.floats(0, 1)
METHODS = st.one_of(
    st.builds(AB, st.floats(0, 1, exclude_min=True, exclude_max=True), st.sampled_from(["means", "paper"])),
    st.builds(TeamDraft, st.sampled_from(["sign", "sum"])),
    st.just(Balanced()),
    st.builds(Probabilistic, st.floats(0, 30) | st.integers(0, 30)),
    st.builds(Optimized, st.sampled_from(["inverse", "linear"]), st.sampled_from(["credit", "linear"])),
    st.builds(Counterfactual, st.sampled_from(["uniform", "ab", "lambda"]), clip=st.none() | positive),
    st.builds(Counterfactual, st.just("optimal"), floor=share),
    st.builds(
        LogOpt,
        bias=st.sampled_from(["known", "estimated"]),
        estimate=st.sampled_from(["ips", "constant", "doubly-robust", "rank-aware"]),
        floor=share,
        schedule=st.sets(st.integers(1, 10**9), max_size=4).map(sorted),
    ),
)


@given(METHODS, st.randoms(use_true_random=False))
def test_every_method_parses_back_whatever_the_order_and_spacing(method: Method, random: Random) -> None:
    assert parse_method(str(method)) == method
    options = [f"{f.name} = {getattr(method, f.name)!r}" for f in fields(method)]
    random.shuffle(options)
    again = parse_method(f" {type(method).__name__} ( {' ,  '.join(options)} ) ")
    assert (again, hash(again), str(again)) == (method, hash(method), str(method))


def test_options_of_any_kind_parse_back() -> None:
    @dataclass(frozen=True, repr=False)
    class Noted(Method):
        note: str
        more: tuple[object, ...] = ()
        flag: bool = False

    try:
        for note in ('a "quoted" word', "back\\slash", "new\nline", "naïve 'ü'"):
            method = Noted(note, (note, (1.0, None, True)))
            assert parse_method(str(method)) == method
        assert str(Noted("x", (1.0, (2,)), flag=1)) == 'Noted(note="x", more=(1, (2,)), flag=True)'  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"'Noted\(\)' is not a method: .*'note'"):
            parse_method("Noted()")
    finally:
        del Method.registry["Noted"]


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
        ("LogOpt(schedule=1000)", "checkpoints must be"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_method(text)


@pytest.mark.slow
def test_the_papers_network_is_loaded_when_a_text_names_it() -> None:
    code = """
import sys
import ranktrial.trial, ranktrial.formats, ranktrial.testing
from ranktrial.methods import known_methods, parse_method

assert "LogOptNetwork" in known_methods()
assert not [name for name in sys.modules if name.startswith("ranktrial.paper")]
print(parse_method("LogOptNetwork(bias='estimated')"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'LogOptNetwork(bias="estimated")'


def test_a_trait_beside_the_traits_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Own has step, which is one of its traits: traits = Traits\(step=...\)"):

        class Own(Method):
            step = 1.0

    assert "Own" not in Method.registry
