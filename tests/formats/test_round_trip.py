"""A trial's report by metric and by segment, adjusted by covariates, its export's, and that of the command line are one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial import decide, estimate
from ranktrial.cli import app
from ranktrial.formats import export, read_log
from ranktrial.report.schema import Report
from ranktrial.trial import Trial
from simulated_trial import Ticks, World

runner = CliRunner()
METRICS = ('Orders(window="1h")', 'Revenue(window="1h", cap=30)', 'Abandonment(role="guard", tolerance=0.5)')
WORLD = World.make(queries=6, k=3)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trial, Path, Report]]:
    """A trial with orders, some of them too recent to count, and with what is known of most visitors; its export and report."""
    folder = tmp_path_factory.mktemp("trial")
    clock = Ticks(step=10.0)
    options: dict[str, Any] = {"k": 3, "seed": 5, "background": False, "metrics": METRICS}
    options |= {"segments": {"device": ["phone", "desktop"]}, "covariates": ["clicks_last_month", "age"]}
    with Trial.create(folder / "t.db", clock=clock, **options) as one:
        random = np.random.default_rng(1)
        for number in range(700):
            query, device = f"q{random.integers(6)}", ("phone", "desktop")[random.integers(2)]
            lists = WORLD.a[query], WORLD.b[query]
            month = 0.1 * int(random.integers(30))
            known = None if number % 9 == 0 else {"clicks_last_month": month, "age": number if number % 4 else None}
            given: dict[str, Any] = {"segment": {"device": device}, "covariates": known}
            shown = one.rank(query, *lists, unit=f"u{number}", size=3, **given)
            for theta, document in zip(WORLD.theta, shown.ranking, strict=False):
                if random.random() < theta * WORLD.zeta[query][document] * (0.4 + 0.4 * month):
                    one.click(shown.id, document, wait=False)
                    if random.random() < 0.5:
                        value = float(random.integers(1, 4_000)) / 100
                        one.event(shown.id, document, "order", value, wait=False)
        one.store.flush()
        clock = one.learning._clock = Ticks(step=0.0, start=clock.now)
        export(one.store, one.name, folder / "log", clock=clock)
        yield one, folder / "log", one.report()


def same(found: Any, told: Any) -> None:
    assert found == told or (found != found and told != told), (found, told)


def test_the_log_is_that_of_the_trial(trial: tuple[Trial, Path, Report]) -> None:
    own, log = trial[0].log(), read_log(trial[1])
    orders = log.events.where(log.events.action == log.actions.index("order"))
    for name in ("at", "rank", "amount", "delay"):
        of_trial = own.events.where(own.events.action == own.actions.index("order"))
        assert sorted(getattr(orders, name)) == sorted(getattr(of_trial, name))
    assert log.segment.tolist() == own.segment.tolist()
    assert log.covariate_names == own.covariate_names == ("clicks_last_month", "age")
    np.testing.assert_array_equal(log.covariates, own.covariates)
    adjusted = estimate(log, theta=WORLD.theta)
    plain = estimate(replace(log, covariates=np.empty((0, 0)), covariate_names=()), theta=WORLD.theta)
    assert adjusted.standard_error != plain.standard_error
    for metric in METRICS[:2]:
        found, told = (estimate(one, theta=WORLD.theta, metric=metric) for one in (log, own))
        assert (found.delta, found.standard_error) == (told.delta, told.standard_error)


def test_answers_are_those_of_the_report(trial: tuple[Trial, Path, Report]) -> None:
    report, found = trial[2], decide(read_log(trial[1]), metrics=METRICS)
    assert [one.title for one in found.metrics] == ["clicks", "orders", "revenue", "searches without a click"]
    assert 0 < found.metrics[1].waiting < 700
    for mine, row in zip(found.metrics, report.metrics, strict=True):
        for name in ("searches", "waiting", "value", "difference", "interval", "capped", "direct", "rate", "guard"):
            same(getattr(mine, name), getattr(row, name))
    assert report.segments is not None
    for answer, of_report in zip(found.segments, report.segments.answers, strict=True):
        for name in ("attribute", "value", "metric", "searches", "difference", "interval", "rate"):
            same(getattr(answer, name), getattr(of_report, name))


def test_the_command_line_says_the_same(trial: tuple[Trial, Path, Report]) -> None:
    command = ["estimate", str(trial[1]), "--by", "device"]
    for metric in METRICS:
        command += ["--metric", metric]
    told = json.loads(runner.invoke(app, [*command, "--json"]).stdout)
    found = decide(read_log(trial[1]), metrics=METRICS)
    assert [one["difference"] for one in told["metrics"]] == [one.difference for one in found.metrics]
    assert [one["metric"] for one in told["metrics"]][1] == METRICS[0]
    values = [(one["attribute"], one["value"], one["metric"]) for one in told["segments"]]
    assert values == [(one.attribute, one.value, one.metric) for one in found.segments]
    printed = " ".join(runner.invoke(app, command).stdout.split())
    assert "By metric (*: told from chance" in printed
    assert "orders secondary" in printed
    assert "device: phone, orders" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "country"], "there is no attribute 'country'; attributes are device"),
        (["--metric", "Order()"], "no metric 'Order'; known: Abandonment"),
        (["--metric", "TimeToFirstClick()", "--metric", "TimeToFirstClick()"], "two metrics are called"),
        (["--read-at", "2026-01-01"], "read_at must be given where the log is imported"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    trial: tuple[Trial, Path, Report], options: list[str], message: str
) -> None:
    told = runner.invoke(app, ["estimate", str(trial[1]), *options])
    assert told.exit_code == 2
    assert message in " ".join(told.output.split())
