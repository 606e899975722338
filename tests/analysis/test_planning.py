"""Plans on three documents, by hand; the paper's cases of the wrong sign; what is said when there is nothing to gain."""

from __future__ import annotations

import json
from itertools import pairwise
from math import ceil, inf, sqrt

import numpy as np
import pytest
from scipy import stats

from ranktrial.analysis.planning.plan import exposure_disagreement, plan
from ranktrial.analysis.planning.planner import planned_worth
from ranktrial.analysis.planning.users import ClickRate, click_sd, plausible_users
from ranktrial.analysis.power import anytime_impressions, tightest_for
from ranktrial.methods import AB, Counterfactual, LogOpt, Method, TeamDraft
from ranktrial.paper.logopt_network import LogOptNetwork
from ranktrial.paper.proof import appendix_a
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based

Z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)


def three_documents() -> Pair:
    pair = Pair.from_lists([["x", "y", "z"]], [["y", "z", "x"]], k=3)
    return pair.knowing(theta=[1.0, 0.9, 0.8])


def many_queries(n: int = 60, documents: int = 8, k: int = 4) -> Pair:
    rng = np.random.default_rng(5)
    lists = [[rng.permutation(documents).tolist() for _ in range(n)] for _ in range(2)]
    return Pair.from_lists(lists[0], lists[1], k).knowing(theta=1 / np.arange(1, k + 1))


def test_an_ab_test_by_hand() -> None:
    # A shows x y z: clicks on x (0.1) and z (0.8); B shows y z x: on z (0.9) and x (0.08).
    means, squares = (0.1 + 0.8, 0.9 + 0.08), (0.1**2 + 0.8**2, 0.9**2 + 0.08**2)
    variances = [mean - square for mean, square in zip(means, squares)]
    second = [variance + mean**2 for variance, mean in zip(variances, means)]
    found = plan(three_documents(), [0.1, 0.0, 1.0], methods=[AB(estimate="paper"), AB()], impressions=1000)
    assert found.truth == pytest.approx(0.08)  # B against A
    assert found.delta == pytest.approx(0.08)
    assert found.ctr == pytest.approx(0.94)
    for row, variance in zip(found.rows, (2 * sum(second) - 0.08**2, 2 * sum(variances))):
        assert row.variance == pytest.approx(variance)
        assert row.impressions == ceil(Z**2 * variance / 0.08**2)
        assert row.detectable == pytest.approx(Z * sqrt(variance / 1000))
        assert row.tightest_at == tightest_for(variance, 0.08)
        assert row.anytime == anytime_impressions(lambda n, v=variance: v, 0.08, tightest_at=row.tightest_at)  # type: ignore[misc]
        assert (row.theta, row.theta_variance, row.first_look) == (None, 0, 100)
        assert row.wrong == 0


def test_one_query_leaves_nothing_to_stratify() -> None:
    user = position_based([0.1, 0.0, 1.0], [1.0, 0.9, 0.8])
    means = AB().moments(three_documents(), user)
    assert AB(estimate="adjusted").moments(three_documents(), user).variance == pytest.approx(means.variance)


def test_stratifying_spares_what_queries_differ_in() -> None:
    pair = Pair.from_lists([["a"], ["c"]], [["b"], ["d"]], k=1)
    user = position_based([0.9, 0.9, 0.1, 0.1], [1.0])  # first query clicked often, second rarely, A as much as B
    pair = pair.knowing(theta=[1.0])
    assert AB(estimate="adjusted").moments(pair, user).variance == pytest.approx(4 * 0.09)
    assert AB().moments(pair, user).variance == pytest.approx(4 * 0.25)


@pytest.mark.parametrize("case", appendix_a(), ids=lambda case: f"{case.method} {case.delta:+.2f}")
def test_the_papers_cases(case: object) -> None:
    from ranktrial.paper.proof import Case

    assert isinstance(case, Case)
    pair = Pair.from_lists([case.ranker_a], [case.ranker_b], k=3)
    names = pair.ids
    zeta = [case.zeta[name] for name in names]
    found = plan(pair.knowing(theta=case.theta), zeta, methods=[case.method])
    (row,) = found.rows
    assert row.wrong == float(case.wrong_sign)
    assert row.outcome == pytest.approx(case.expected_outcome * np.sign(case.delta))
    assert (row.impressions == inf) == case.wrong_sign
    assert any("wrong way" in sentence for sentence in found.verdict) == case.wrong_sign
    if not case.wrong_sign:
        variance = case.method.moments(pair, position_based(zeta, case.theta)).variance
        assert row.impressions == ceil(Z**2 * variance / case.expected_outcome**2)


def test_a_smaller_difference_takes_interleaving_in_proportion() -> None:
    zeta = [0.9, 0.5, 0.1]
    whole, half = (
        plan(three_documents(), zeta, methods=[TeamDraft()], delta=delta).rows[0]
        for delta in (None, abs(three_documents().delta(position_based(zeta, [1.0, 0.9, 0.8]))) / 2)
    )
    assert half.outcome == pytest.approx(whole.outcome / 2)
    assert half.impressions == pytest.approx(4 * whole.impressions, rel=1e-2)


def test_disagreement_of_lists() -> None:
    pair = Pair.from_lists([["a", "b"], ["a", "b"], ["a"], []], [["a", "b"], ["c", "d"], ["b"], []], k=2)
    assert exposure_disagreement(pair.knowing(theta=[1.0, 0.5])).tolist() == [0, 1, 1, 0]


@pytest.mark.slow
def test_nothing_in_common_leaves_nothing_to_gain() -> None:
    lists = [[[f"{side}{i}" for i in range(3)] for _ in range(4)] for side in "ab"]
    pair = Pair.from_lists(lists[0], lists[1], 3).knowing(theta=[1.0, 0.5, 0.3])
    methods: list[Method] = [AB(), LogOpt()]
    found = plan(pair, ClickRate(0.6), delta=0.01, methods=methods)
    assert found.disagreement == pytest.approx(1)
    assert found.rule == pytest.approx(1)
    assert found.gain is not None
    assert found.gain < 1.1
    assert found.verdict[0].startswith("Nothing to gain over A/B here")


def test_the_same_lists_leave_nothing_to_find() -> None:
    pair = Pair.from_lists([["a", "b"]], [["a", "b"]], 2)
    found = plan(pair.knowing(theta=[1.0, 0.5]), ClickRate(0.6), delta=0.01, methods=[AB(), LogOpt()])
    assert found.verdict == ("Nothing to find: both rankers show the same lists.",)


def clicks_of(pair: Pair, user: User) -> tuple[float, float]:
    """Mean and standard deviation of clicks per page, from the law of their number."""
    law = AB().outcome_law(pair, user).sum(0)
    number = np.arange(len(law))
    return float(law @ number), float(np.sqrt(law @ number**2 - (law @ number) ** 2))


def test_the_clicks_of_users_who_tell_documents_apart_are_accepted() -> None:
    """Documents that differ within a page: fewer clicks vary less than with equal documents, and that is no mistake."""
    rng = np.random.default_rng(1)
    relevance = rng.choice([0.05, 0.3, 0.9], (300, 12), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + rng.normal(0, noise, relevance.shape))).tolist() for noise in (0.2, 0.5)]
    pair = Pair.from_lists(lists[0], lists[1], k=6).knowing(theta=1 / np.arange(1, 7))
    true = position_based(
        relevance[np.repeat(np.arange(300), np.diff(pair.offsets)), np.array(pair.ids)], pair.known_theta
    )
    ctr, sd = clicks_of(pair, true)
    assert click_sd(pair, true) == pytest.approx(sd)
    assert sd < 0.98 * click_sd(pair, ClickRate(ctr).user(pair))
    assert clicks_of(pair, ClickRate(ctr, sd).user(pair)) == pytest.approx((ctr, sd))


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.8, 0.9, 0.99, 1.0, 1.01, 1.2, 1.45])
def test_a_click_rate_gives_its_clicks(part: float) -> None:
    pair = many_queries()
    theta = pair.known_theta
    sd = part * sqrt(0.7 - (0.7 / theta.sum()) ** 2 * (theta**2).sum())
    rate = ClickRate(0.7, sd)
    user = rate.user(pair)
    assert clicks_of(pair, user) == pytest.approx((0.7, sd))
    assert rate.note(pair, user) == ""
    if part == 1:
        assert user.zeta == pytest.approx(ClickRate(0.7).user(pair).zeta)
        # The variance of the difference in means is four times that of clicks on a page.
        assert AB().moments(pair, user).variance == pytest.approx(4 * sd**2)


def test_the_least_standard_deviation_by_hand() -> None:
    """Both rankers put x first: 0.4 clicks vary least if all of them are on x."""
    pair = Pair.from_lists(["xyz"], ["xzy"], k=3).knowing(theta=[1.0, 0.5, 0.25])
    least = ClickRate(0.4, sqrt(0.4 * 0.6)).user(pair)
    assert least.zeta == pytest.approx([0.4, 0.0, 0.0])
    # y and z stand at the same places, one in A and one in B: what x leaves of 1.15 clicks goes to both alike.
    more = ClickRate(1.15, 0.01 + sqrt(0.15 * 0.85))
    user = more.user(pair)
    assert user.zeta == pytest.approx([1.0, 0.2, 0.2])
    assert clicks_of(pair, user) == pytest.approx((1.15, sqrt(0.1 * 0.9 + 0.05 * 0.95)))


def test_a_standard_deviation_that_lists_cannot_have_is_told() -> None:
    """0.7 clicks a page could have it, but not with these lists and this position bias: the plan says what it took instead."""
    pair = many_queries()
    for sd, bound in ((sqrt(0.7 * 0.3) + 0.01, "at least"), (sqrt(0.7 * 3.3) - 0.01, "at most")):
        rate = ClickRate(0.7, sd)
        user = rate.user(pair)
        ctr, nearest = clicks_of(pair, user)
        assert ctr == pytest.approx(0.7)
        found = plan(pair, rate, delta=0.01, methods=[AB()])
        assert found.notes == (rate.note(pair, user),)
        assert f"{bound} about {nearest:.4g}: planned with that" in found.verdict[0]
        assert found.to_dict()["notes"] == list(found.notes)
    assert plan(pair, ClickRate(0.7), delta=0.01, methods=[AB()]).notes == ()


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (ClickRate(2.5), "ctr is 2.5, but only 2.083 results of a page are looked at"),
        (ClickRate(0.7, 0.4), "sd is 0.4, which 0.7 clicks a page cannot have: .* of 0.4583 to 1.52$"),
        (ClickRate(1.2, 0.3), "sd is 0.3, which 1.2 clicks a page cannot have: .* of 0.4 to 1.833$"),
        (ClickRate(0.7, 3.0), "sd is 3, which 0.7 clicks a page cannot have: .* on pages of 4 "),
    ],
)
def test_impossible_click_rates(rate: ClickRate, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rate.user(many_queries())


def test_plausible_users_differ_by_exactly_what_matters() -> None:
    pair = many_queries()
    user = ClickRate(0.7).user(pair)
    found = plausible_users(pair, user, 0.02, 6, seed=3)
    assert len(found) == 6
    assert {round(pair.delta(each), 6) for each in found} == {-0.02, 0.02}
    for each in found:
        assert np.mean(pair.ctr(each)) == pytest.approx(0.7, rel=0.02)
    assert plausible_users(pair, user, 0.6, 2, seed=3) == []


def test_without_labels_interleaving_is_judged_on_plausible_users() -> None:
    pair = many_queries()
    found = plan(pair, ClickRate(0.7), delta=0.05, methods=[AB(), TeamDraft()], users=5, seed=3)
    assert (found.truth, found.users) == (None, 5)
    user = ClickRate(0.7).user(pair)
    outcomes = []
    for each in plausible_users(pair, user, 0.05, 5, seed=3):
        outcomes.append(TeamDraft().moments(pair, each).mean * np.sign(pair.delta(each)))
    assert found.rows[1].wrong == pytest.approx(np.mean(np.array(outcomes) <= 0))
    assert found.rows[1].outcome == pytest.approx(np.median(outcomes))
    huge = plan(pair, ClickRate(0.7), delta=0.6, methods=[TeamDraft()], users=2)
    assert huge.rows == ()
    assert "no plausible users make a difference of 0.6" in huge.left_out[0]


def test_the_prediction_of_the_closed_form_comes_from_the_click_rate() -> None:
    pair = many_queries()
    estimates = ("ips", "constant", "rank-aware")
    methods: list[Method] = [
        LogOpt(relevance="constant", estimate=estimate, loss=None, keep=0, holdback=0, schedule=())
        for estimate in estimates
    ]
    found = [row.variance for row in plan(pair, ClickRate(0.1), delta=0.01, methods=methods).rows]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(
        Counterfactual(logging="optimal").moments(pair, ClickRate(0.1).user(pair)).variance
    )


def test_policies_that_cannot_be_listed() -> None:
    pair = many_queries(20, documents=30, k=6)
    user = position_based(np.random.default_rng(1).uniform(0.1, 0.9, pair.n_documents), pair.known_theta)
    method = Counterfactual(logging="uniform")
    (row,) = plan(pair, user, methods=[method]).rows
    run = method.simulate(pair, user, [200_000], seed=1)
    assert row.variance == pytest.approx(run.mean_square[0] - run.estimate[0] ** 2, rel=0.06)
    assert row.ctr == pytest.approx(run.ctr[0], rel=0.02)


def test_results_are_plain_data() -> None:
    found = plan(three_documents(), [0.1, 0.0, 1.0], impressions=1000)
    text = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert text["methods"][0]["method"] == 'AB(estimate="adjusted")'
    wrong = next(row for row in text["methods"] if row["method"] == "TeamDraft()")
    assert wrong["impressions"] is None
    assert wrong["wrong"] == 1
    assert str(found).splitlines()[1].split()[0] == "method"
    assert "never" in repr(found)


@pytest.mark.parametrize("known", [True, False])
def test_budgets_cost_impressions_and_give_clicks(known: bool) -> None:
    """With labels, and without on the mean over plausible users, whose relevance lists tell worse."""
    pair = many_queries()
    zeta = 0.8 / (1 + np.minimum(*pair.ranks))
    methods = [AB(), LogOpt()]
    found = plan(pair, zeta if known else ClickRate(0.7), delta=0.01, methods=methods, users=4)
    assert [row.loss for row in found.budgets] == [0.05, 0.02, 0.01, 0, -0.02, -0.05]
    for one, other in pairwise(found.budgets):
        assert one.impressions <= other.impressions * (1 + 1e-9)
        assert one.gain <= other.gain + (1e-9 if known else 0.01)
    own = next(row for row in found.budgets if row.loss == 0)
    assert own.impressions == pytest.approx(found.rows[1].impressions)
    assert own.gain > (0 if known else -0.02)
    assert [row["loss"] for row in found.to_dict()["budgets"]] == [row.loss for row in found.budgets]
    assert plan(pair, zeta, methods=[AB(), LogOpt(loss=None)]).budgets == ()


def test_equal_lists_have_no_rule() -> None:
    pair = Pair.from_lists(["abc"], ["abc"], k=3)
    found = plan(pair.knowing(theta=[1, 0.5, 0.3]), ClickRate(0.5), delta=0.01)
    assert found.rule == inf
    assert found.to_dict()["rule"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power": 1.0}, "power is 1.0"),
        ({"power": 0.02}, "power is 0.02, must be strictly between 0.5 and 1"),
        ({"level": 0}, "level is 0"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"impressions": 0}, "impressions is 0"),
        ({"methods": [LogOptNetwork()]}, "changes what it shows on the way"),
        ({"methods": [Counterfactual(propensities="observed")]}, "cannot be planned"),
        ({"methods": [Counterfactual(logging="ab", clip=0.1)]}, "cuts off weights, so it cannot be planned"),
    ],
)
def test_bad_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(three_documents(), [0.1, 0.0, 1.0], **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="say which difference"):
        plan(three_documents(), 0.5)


def test_any_lists_can_be_planned_with_a_standard_deviation() -> None:
    """A query without documents, and users who click on whatever they look at."""
    pair = Pair.from_lists([["x", "y", "z"], [], ["a", "b"]], [["z", "x", "y"], [], ["b", "a"]], k=3)
    pair = pair.knowing(theta=[1, 0.5, 0.3])
    assert ClickRate(0.6, 0.6).user(pair).zeta.shape == (5,)
    full = Pair.from_lists([["x", "y", "z"]], [["z", "x", "y"]], k=3).knowing(theta=[1, 0.5, 0.3])
    assert ClickRate(1.8, 0.8).user(full).zeta == pytest.approx(np.ones(3))


def test_a_plan_says_what_standing_against_hostile_searches_costs() -> None:
    """Clicks of one search in a hundred may add 0.01 x what they are worth, or the allowance if that is more."""
    pair = Pair.from_lists([list("wxyz")] * 2, [list("wxzy")] * 2, 4).knowing(theta=[1, 0.7, 0.5, 0.3])
    assert planned_worth(pair).by_ab == 4
    assert planned_worth(pair).by_model == pytest.approx(2 * 0.2 / 0.8)
    rows = {
        (share, contamination): plan(
            pair, 0.2, methods=[LogOpt(bias="known"), AB()], delta=0.05, allowance=share, contamination=contamination
        ).rows
        for share in (0.0, 0.06)
        for contamination in (None, 0.0, 0.01)
    }
    for share in (0.0, 0.06):
        (model, _), (without, _), (with_hostile, ab) = (rows[share, one] for one in (None, 0.0, 0.01))
        assert without.anytime == without.unguarded
        assert model.anytime == pytest.approx(without.anytime, rel=0.01)  # a fifteenth of the allowance costs nothing
        assert with_hostile.unguarded == without.anytime
        assert with_hostile.anytime > without.anytime
        assert ab.anytime > ab.unguarded == rows[share, None][1].anytime


def test_a_segment_needs_its_own_searches_and_more_among_many() -> None:
    rate, pair = ClickRate(1.0, 1.2), many_queries()
    options = {"methods": [AB()], "delta": 0.05}
    alone = plan(pair, rate, segments={"phone": 0.5}, **options)  # type: ignore[arg-type]
    both = plan(pair, rate, segments={"phone": 0.5, "tv": 0.05}, **options)  # type: ignore[arg-type]
    (one,), (phone, tv) = alone.segments, both.segments
    assert one.impressions == one.own / 0.5 < phone.impressions
    assert phone.own == tv.own
    assert tv.impressions == tv.own / 0.05
    assert f"tv (5% of the searches) {int(float(f'{tv.impressions:.3g}')):,}" in both.verdict[-1]
    assert both.to_dict()["segments"][1]["share"] == 0.05
    assert plan(pair, rate, **options).segments == ()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="share of phone is 1"):
        plan(pair, rate, segments={"phone": 1.2}, **options)  # type: ignore[arg-type]


def test_where_ab_traffic_decides_a_plan_counts_all_of_it_from_the_point_where_a_trial_sees_that() -> None:
    pair = Pair.from_lists([["x", "y", "z"]], [["z", "x", "y"]], k=3).knowing(theta=[1, 0.5, 0.3])
    user = position_based([0.4, 0.35, 0.3], [1, 0.5, 0.3])
    methods = [LogOpt(bias="known"), LogOpt(bias="known", holdback=0.5)]
    turning, staying = plan(pair, user, methods=methods, delta=0.01, allowance=0.49, contamination=0.0).rows
    for now, before in ((turning.impressions, staying.impressions), (turning.anytime, staying.anytime)):
        assert before / 2 < now < 0.6 * before
