from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.paper.proof import appendix_a

runner = CliRunner()


def test_the_four_cases_to_four_decimals() -> None:
    found = [
        (str(c.method), c.theta, c.zeta["A"], round(c.delta, 4), round(c.expected_outcome, 4), c.wrong_sign)
        for c in appendix_a()
    ]
    assert found == [
        ("TeamDraft()", (1, 0.9, 0.8), 0.1, -0.08, 0.057, True),
        ("Probabilistic(tau=4)", (1, 0.9, 0.3), 0.5, -0.25, 0.0966, True),
        ('Optimized(credit="linear")', (1, 0.9, 0.9), 0.5, 0.05, 0.0333, False),
        ('Optimized(credit="linear")', (1, 0.9, 0.9), 0.45, 0.045, -0.06, True),
    ]


def test_json_has_the_promised_fields() -> None:
    result = runner.invoke(app, ["proof", "--json"])
    assert result.exit_code == 0
    cases = json.loads(result.stdout)
    assert len(cases) == 4
    for case in cases:
        assert {"method", "theta", "zeta", "delta", "expected_outcome", "wrong_sign", "displays"} <= case.keys()
        assert sum(display["probability"] for display in case["displays"]) == pytest.approx(1)
    assert [case["wrong_sign"] for case in cases] == [True, True, False, True]


def test_the_text_names_both_slips() -> None:
    text = " ".join(runner.invoke(app, ["proof"]).stdout.split())
    assert text.count("Slip in the paper") == 2
    assert "holds the values of document B" in text
    assert "turns wrong for zeta_A below 0.482" in text
    assert text.count("WRONG SIGN") == 3
    for number in ("+0.0570", "+0.0966", "+0.0333", "-0.0600", "0.4182", "0.7371"):
        assert number in text


def test_the_sign_turns_where_the_note_says() -> None:
    args = ["proof", "--json", "--ranker-a", "ABC", "--ranker-b", "BCA", "--theta", "1,.9,.9"]
    for zeta_a, wrong in ((0.483, False), (0.481, True)):
        zeta = ["--zeta", f"A={zeta_a},B=0,C=1", "--method", "Optimized(credit='linear')"]
        assert json.loads(runner.invoke(app, args + zeta).stdout)[0]["wrong_sign"] is wrong


def test_a_case_of_ones_own() -> None:
    args = ["--ranker-a", "x1,x2", "--ranker-b", "x2,x3", "--theta", "1,.5", "--zeta", "x1=.1,x2=0,x3=1"]
    cases = json.loads(runner.invoke(app, ["proof", "--json", *args]).stdout)
    assert {case["method"].split("(")[0] for case in cases} == {
        "TeamDraft", "Probabilistic", "Optimized", "Balanced", "AB"
    }  # fmt: skip
    ab = next(case for case in cases if case["method"] == "AB()")
    assert ab["expected_outcome"] == pytest.approx(ab["delta"])
    assert ab["delta"] == pytest.approx(0.1 - 0.5)
    assert runner.invoke(app, ["proof", *args]).exit_code == 0


def test_a_difference_of_a_rounding_error_is_none() -> None:
    args = ["--ranker-a", "DCBA", "--ranker-b", "ADCB", "--theta", "1,.9,.7,.2", "--zeta", "A=.9,B=.2,C=.6,D=.9"]
    (case,) = json.loads(runner.invoke(app, ["proof", "--json", *args, "--method", "TeamDraft()"]).stdout)
    assert abs(case["expected_outcome"]) < 1e-12
    assert case["wrong_sign"] is False


@pytest.mark.slow
def test_a_method_that_cannot_list_its_displays_is_left_out_with_a_line() -> None:
    letters = "ABCDEFGHIJ"
    zeta = ",".join(f"{d}=.5" for d in letters)
    theta = ",".join(["1"] + [".5"] * 9)
    args = ["proof", "--ranker-a", letters, "--ranker-b", letters[::-1], "--theta", theta, "--zeta", zeta]
    result = runner.invoke(app, args)
    assert result.exit_code == 0
    assert "left out Probabilistic(tau=4)" in result.stderr
    assert "TeamDraft()" in result.stdout
    asked = runner.invoke(app, [*args, "--method", "Probabilistic()"])
    assert asked.exit_code == 2


def test_brackets_in_names_are_not_markup() -> None:
    args = ["--ranker-a", "[red],b", "--ranker-b", "b,[red]", "--theta", "1,.5", "--zeta", "[red]=.5,b=.1"]
    result = runner.invoke(app, ["proof", *args])
    assert result.exit_code == 0
    assert "[red] b" in result.stdout
    broken = runner.invoke(app, ["data", "[/x].txt"])
    assert broken.exit_code == 2
    assert "[/x].txt" in broken.stderr


GOOD = {"--ranker-a": "AB", "--ranker-b": "BA", "--theta": "1,.5", "--zeta": "A=.5,B=0"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--theta": "1,x"}, "--theta: 'x' is not a number"),
        ({"--theta": "1,1.5"}, "theta[1] is 1.5"),
        ({"--zeta": "A=.5"}, "zeta has no value for document 'B'"),
        ({"--zeta": "A=.5,B=0,Z=1"}, "zeta has a value for 'Z', which neither ranker lists"),
        ({"--zeta": "A=.5,B"}, "'B' must look like A=0.5"),
        ({"--zeta": "A=.5,B=0,A=1"}, "document 'A' is given twice"),
        ({"--zeta": "A=2,B=0"}, "zeta[0] is 2"),
        ({"--ranker-a": "AA"}, "ranker A lists document 'A' twice"),
        ({"--method": "Nonsense()"}, "no method 'Nonsense'"),
        ({"--zeta": None}, "missing: --zeta"),
    ],
)
def test_bad_input_says_what_is_wrong(change: dict[str, str | None], message: str) -> None:
    options = {**GOOD, **change}
    args = [part for name, value in options.items() if value is not None for part in (name, value)]
    result = runner.invoke(app, ["proof", *args])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
