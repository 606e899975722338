from __future__ import annotations

import numba as nb
import numpy as np

from ranktrial._kernels import watching_compilations
from ranktrial.methods import parse_method
from ranktrial.paper.logopt_network import LogOptNetwork
from ranktrial.paper.study import read_plan
from ranktrial.paper.study.plan import PRESETS
from ranktrial.paper.study.warm_up import SMALL, _quick, warm_up
from ranktrial.rankings._kernels import click_probabilities
from ranktrial.rankings.lists import UserArrays


def test_loops_that_are_compiled_are_named() -> None:
    began: list[str] = []
    fresh = nb.njit(click_probabilities.py_func)  # not in any cache
    one = np.ones(1)
    with watching_compilations(began.append):
        fresh(np.zeros((1, 1), np.int32), UserArrays(one, one, one, one, one, True))
        fresh(np.zeros((1, 1), np.int32), UserArrays(one, one, one, one, one, True))
    assert began == ["click_probabilities"]


def test_every_preset_is_warmed_up_with_little_training_and_one_fit() -> None:
    for preset in PRESETS:
        for method in map(parse_method, read_plan(preset).methods):
            quick = _quick(method)
            assert type(quick) is type(method)
            assert len(quick.traits.learns_at) <= 1
            if isinstance(quick, LogOptNetwork) and isinstance(method, LogOptNetwork):
                assert (quick.steps, quick.samples) == (SMALL["steps"], SMALL["samples"])
                assert (quick.click_model, quick.propensities) == (method.click_model, method.propensities)


def test_both_kinds_of_runs_are_warmed_up() -> None:
    said: list[tuple[str, int, int]] = []
    methods = ["AB()", 'Counterfactual(logging="lambda")', "LogOptNetwork()", "LogOpt()"]
    for simulate in (False, True):
        warm_up(methods, simulate=simulate, report=lambda *what: said.append(what))
    assert all(total == len(methods) for _, _, total in said)
