from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ranktrial.methods import LogOpt, parse_method
from ranktrial.paper.logopt_network import LogOptNetwork
from ranktrial.paper.study import PlanError, StudyPlan, UserPlan, read_plan
from ranktrial.paper.study.plan import PRESETS
from ranktrial.paper.study.tasks import seed_of
from ranktrial.rankings import expected_clicks

MINIMAL = """
pairs = 2
impressions = 1000
methods = ["AB()"]
[data.small]
source = "yahoo-like"
queries = 50
"""


def read(tmp_path: Path, text: str) -> StudyPlan:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return read_plan(str(file))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_plans_and_plans_survive_json(preset: str) -> None:
    plan = read_plan(preset)
    again = StudyPlan.from_dict(json.loads(json.dumps(plan.to_dict())), "plan.json", Path("/"))
    assert again == plan
    assert again.digest == plan.digest


def test_the_paper_preset_is_the_papers_setting() -> None:
    plan = read_plan("paper")
    assert (plan.pairs, plan.impressions, plan.k, len(plan.points)) == (500, 3_000_000, 10, 500)
    assert plan.points[0] == 100
    assert plan.user == UserPlan(kind="position-based", eta=1, zeta=(0.1, 0.325, 0.55, 0.775, 1))
    methods = [parse_method(text) for text in plan.methods]
    assert {(m.bias, m.relevance) for m in methods if isinstance(m, LogOptNetwork)} == {
        ("known", "estimated"),
        ("estimated", "estimated"),
        ("known", "true"),
    }
    assert LogOpt() in methods
    closed = [m for m in methods if isinstance(m, LogOpt) and m.loss is None]
    assert {(m.bias, m.estimate, m.floor, m.holdback) for m in closed} == {
        (bias, estimate, 0, 0) for bias in ("known", "estimated") for estimate in ("ips", "rank-aware")
    }
    as_published = [
        method for method in map(parse_method, read_plan("departures").methods) if isinstance(method, LogOptNetwork)
    ]
    assert {m.click_model for m in as_published} == {"regression-em"}


def test_checkpoints_are_log_spaced_and_end_with_the_impressions(tmp_path: Path) -> None:
    plan = read(tmp_path, MINIMAL + "\n")
    assert replace(plan, impressions=100_000, checkpoints=4).points.tolist() == [100, 1_000, 10_000, 100_000]
    assert replace(plan, impressions=30, checkpoints=4).points.tolist() == [30]
    crowded = replace(plan, impressions=110, checkpoints=100).points
    assert np.all(np.diff(crowded) > 0)
    assert crowded[-1] == 110


def test_files_are_relative_to_the_plan(tmp_path: Path) -> None:
    text = MINIMAL.replace('"yahoo-like"', '"sets/train.txt"') + 'rankers = "rankers.txt"'
    (data,) = read(tmp_path, text).data
    assert data.files() == [tmp_path / "sets" / "train.txt", tmp_path / "rankers.txt"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pairs = 2", "pairs = 0", "pairs is 0, must be at least 1"),
        ("pairs = 2", "pairs = 2.5", "pairs is 2.5, must be a whole number"),
        ("pairs = 2", "pairs = true", "pairs is True, must be a whole number"),
        ("pairs = 2", "", "pairs is missing, must be a whole number"),
        ("pairs = 2", "pairs = 2\npears = 3", "no key 'pears'; did you mean pairs?"),
        ("pairs = 2", "pairs = 2\nk = 100", "k is 100, must be between 1 and 64"),
        ('["AB()"]', '"AB()"', "methods is 'AB()', must be a list of texts"),
        ('["AB()"]', "[]", "methods is empty, must name a method"),
        ('["AB()"]', '["ABC()"]', "no method 'ABC'; known: AB, "),
        ('["AB()"]', '["AB(split=2)"]', "split is 2, must be strictly between 0 and 1"),
        ('["AB()"]', '["AB()", "AB(split=0.5)"]', "methods has AB() twice"),
        ("queries = 50", "", "[data.small] queries is missing, a synthetic set (yahoo-like) needs its size"),
        ("queries = 50", 'queries = "50"', "[data.small] queries is '50', must be a whole number"),
        ("queries = 50", "queries = 50\nsize = 3", "[data.small] no key 'size'; known: source, queries, seed"),
        ('source = "yahoo-like"', "", "[data.small] source is missing, must be a text in quotes"),
        ("[data.small]", '[data."a/b"]', "[data.a/b] name is 'a/b', must be letters"),
        ("[data.small]", "[date.small]", "no key 'date'; did you mean data?"),
        (MINIMAL[MINIMAL.index("[data") :], "", "data is missing, must be a table [data.NAME] for each data set"),
        (MINIMAL[MINIMAL.index("[data") :], "data = 3", "data is 3, must be a table [data]"),
        (MINIMAL[MINIMAL.index("[data") :], "[data]\nsmall = 3", "data.small is 3, must be a table [data.small]"),
        ("queries = 50", 'queries = 50\nname = "x"', "[data.small] no key 'name'; known: source, queries, seed"),
        (
            "queries = 50",
            "queries = 50\nseed = 1979-05-27",
            "[data.small] seed is datetime.date(1979, 5, 27), must be a",
        ),
        ("queries = 50", 'queries = 50\nscores = ["a", 3]', "[data.small] scores is ['a', 3], must be a list of texts"),
        ('source = "yahoo-like"', 'source = ["a"]', "[data.small] source is ['a'], must be a text in quotes"),
        ("pairs = 2", "pairs = 2\nsimulate = 1", "simulate is 1, must be true or false"),
        ("queries = 50", 'queries = 50\n[user]\nkind = "cascades"', "[user] kind is 'cascades', must be one of"),
        ("queries = 50", "queries = 50\n[user]\nzeta = [0.1, 2]", "[user] zeta[1] is 2, must be between 0 and 1"),
        ("queries = 50", 'queries = 50\n[user]\nzeta = ["a"]', "[user] zeta is ['a'], must be a list of numbers"),
        ("queries = 50", "queries = 50\n[user]\nrelevant = [1]", '[user] relevant is for kind = "trust-bias"'),
        ("queries = 50", "queries = 50\n[user]\nphones = 0.5", '[user] phones is for kind = "two-devices"'),
        ("queries = 50", "queries = 50\n[user]\nvisible = 3", '[user] visible is for kind = "two-devices"'),
        (
            "queries = 50",
            'queries = 50\n[user]\nkind = "two-devices"\nphones = 1',
            "[user] phones is 1.0, must be strictly between 0 and 1",
        ),
        (
            "queries = 50",
            'queries = 50\nk = 3\nuser.kind = "two-devices"',
            "visible is 4, must be between 1 and 3",
        ),
        (
            "queries = 50",
            'queries = 50\n[user]\nkind = "trust-bias"\nrelevant = [1, 1]',
            "theta, relevant and irrelevant have 10, 2, 10 ranks, must agree",
        ),
        ("pairs = 2", "pairs = 2\nlimits = -1", "limits is -1, must be at least 0"),
        ("queries = 50", "queries = 50\nk = 65", "[data.small] k is 65, must be between 1 and 64"),
        ("queries = 50", 'queries = 50\nuser.kind = "x"', "[data.small.user] kind is 'x', must be one of"),
        ("queries = 50", "queries = 50\nuser.eta = -1", "[data.small.user] eta is -1.0, must be between 0 and 10"),
        (
            "queries = 50",
            'queries = 50\nuser = {kind = "trust-bias", irrelevant = [0, 0]}',
            "theta, relevant and irrelevant have 10, 10, 2 ranks, must agree",
        ),
        ("pairs = 2", "pairs = ", "not a TOML file: Invalid value (at line 2"),
    ],
)
def test_errors_name_the_file_the_key_and_what_would_be_right(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        read(tmp_path, MINIMAL.replace(old, new))
    assert str(caught.value).startswith(f"{tmp_path / 'mine.toml'}: {message}")


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(PlanError, match="no file 'papers', and no preset of that name; presets: smoke, small, paper"):
        read_plan("papers")


@pytest.mark.parametrize("kind", ["position-based", "trust-bias", "cascade", "two-devices"])
def test_users_can_be_told_in_a_plan(tmp_path: Path, kind: str) -> None:
    plan = read(tmp_path, MINIMAL + f'[user]\nkind = "{kind}"\neta = 0.5\nassumed_eta = 1')
    user = plan.user.build(np.full(3, 0.4), 5)
    assert user.name.replace(" ", "-") == kind
    assert user.reads_on == (kind not in ("cascade", "two-devices"))
    assert plan.user.theta(2).tolist() == [1, 0.5]


def test_methods_are_told_one_theta_of_two_devices(tmp_path: Path) -> None:
    """Theta of the average visitor: with it clicks on a document at rank r are theta_r times its relevance, on average."""
    plan = read(tmp_path, MINIMAL + '[user]\nkind = "two-devices"\nphones = 0.75\nvisible = 2')
    theta = plan.user.theta(4)
    assert theta.tolist() == [1, 0.5, 0.25 / 3, 0.25 / 4]
    user, ranking = plan.user.build(np.array([0.4, 0.8, 0.2, 0.6]), 4), np.array([[2, 0, 3, 1]], np.int32)
    np.testing.assert_allclose(expected_clicks(ranking, user), theta * user.zeta[ranking], atol=1e-15)
    assert "phones" not in StudyPlan.to_dict(read(tmp_path, MINIMAL))["user"]  # studies that are kept go on


def test_seeds_depend_on_every_part_of_the_key_and_nothing_else() -> None:
    keys: list[tuple[int, str, int, str]] = [
        (1, "yahoo", 0, "AB()"),
        (2, "yahoo", 0, "AB()"),
        (1, "mslr", 0, "AB()"),
        (1, "yahoo", 1, "AB()"),
        (1, "yahoo", 0, "TeamDraft()"),
    ]
    drawn = {tuple(seed_of(*key).generate_state(2).tolist()) for key in keys}
    assert len(drawn) == len(keys)
    assert drawn == {tuple(seed_of(*key).generate_state(2).tolist()) for key in reversed(keys)}
