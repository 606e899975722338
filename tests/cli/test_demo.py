"""`ranktrial demo`, a short one: a service that starts, is visited, reports and ends."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.cli.demo import SimulatedSite, service
from ranktrial.trial import Trial

runner = CliRunner()


def test_the_truth_is_that_of_the_lists() -> None:
    site = SimulatedSite.make(queries=20, k=4, seed=3)
    assert site.a == SimulatedSite.make(queries=20, k=4, seed=3).a
    ctr = [
        np.mean([sum(t * site.zeta[d] for t, d in zip(site.theta, ranked)) for ranked in lists])
        for lists in (site.a, site.b)
    ]
    assert site.delta == pytest.approx(ctr[0] - ctr[1])
    assert site.delta > 0


@pytest.mark.slow
def test_a_short_trial(tmp_path: Path) -> None:
    arguments = ["demo", "--impressions", "200", "--json", "--out", str(tmp_path)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["inside"]
    assert found["truth"] == pytest.approx(-SimulatedSite.make(seed=1).delta)
    with Trial.open(tmp_path / "demo.db", background=False) as trial:
        report = trial.report()
    assert (report.clicks, report.verdict) == (found["clicks"], found["verdict"])
    assert report.verdict in Path(found["html"]).read_text()
    fallbacks = sum(count for name, count in report.tallies.items() if name.startswith("fallback"))  # of a slow disk
    assert found["impressions"] == report.impressions == 200 - fallbacks
    assert not [name for name in report.tallies if "fallback" not in name and "void" not in name]
    gone = HTTPConnection(urlsplit(found["address"]).netloc, timeout=10)
    with pytest.raises(ConnectionRefusedError):
        gone.request("GET", "/healthz")
    again = runner.invoke(app, arguments)
    assert again.exit_code == 2
    assert "exists already" in " ".join(again.stderr.split())


@pytest.mark.slow
def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "demo.db").write_text("not a store, but long enough to be taken for a damaged one")
    with (
        pytest.raises(OSError, match=r"(?s)the service did not start.*cannot be opened as a store"),
        service(tmp_path / "demo.db"),
    ):
        pass
