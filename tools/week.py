"""A week in fast motion: `python tools/week.py FOLDER [better|worse]` lives through a trial, as its operators see it.

A shop's visitors search around the clock, more by day than by night. B is better, or worse; the trial begins with a few
visitors, grows by its ramp, is stopped by a guard or serves the winner. On the third day no click arrives for some hours.
Every message that it sends is printed, and at each of the telling ones what the panels of the Grafana dashboard would show;
pictures of the page at those moments are in the folder, wide and narrow.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from ranktrial.report.live_page import report_html  # noqa: E402
from ranktrial.report.schema import Report  # noqa: E402
from ranktrial.service.gauges import Watched  # noqa: E402
from ranktrial.service.metrics import Metrics  # noqa: E402
from ranktrial.trial import Trial, Webhook  # noqa: E402
from ranktrial.trial.drawing import warm_up  # noqa: E402
from receiver import SECRET, receiving  # noqa: E402
from simulated_trial import World  # noqa: E402

MONDAY, HOUR, DAY = 1_794_787_200.0, 3_600.0, 86_400.0  # 2026-11-16
DAYS, A_DAY, K = 9, 6_000, 10
SILENT = range(2 * 24 + 9, 2 * 24 + 14)  # hours without clicks
SCREENS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "narrow": {"viewport": {"width": 390, "height": 900}, "color_scheme": "dark"},
}


class Clock:
    """A clock that is set by hand."""

    now = MONDAY

    def __call__(self) -> float:
        return self.now


def world(better: bool) -> World:
    """A hundred queries; one ranker has five times the noise of the other."""
    good = World.make(queries=100, documents=20, k=K, noise=0.1 if better else 0.2)
    return World(good.zeta, good.b, good.a, good.theta) if better else good


def hours(trial: Trial, of: World, clock: Clock) -> Iterator[int]:
    """Live through the trial; yields after every hour, and when it has been looked after."""
    random, queries = np.random.default_rng(1), list(of.zeta)
    for hour in range(24 * DAYS):
        rate = A_DAY / 24 * (1 - 0.8 * np.cos(2 * np.pi * (hour - 3) / 24))
        for second in np.sort(random.uniform(0, HOUR, random.poisson(rate))).tolist():
            clock.now = MONDAY + hour * HOUR + second
            query = queries[min(int(random.exponential(30)), len(queries) - 1)]
            shown = trial.rank(query, of.a[query], of.b[query], unit=f"u{random.integers(50_000)}", size=K)
            if shown.fallback is not None or hour in SILENT:
                continue
            for rank, document in enumerate(shown.ranking):
                if random.random() < of.theta[rank] * of.zeta[query][document]:
                    trial.click(shown.id, document, wait=False)
        trial.store.flush()
        clock.now = MONDAY + (hour + 1) * HOUR
        trial.watcher.step()
        for _ in range(2):  # what one step does is told by the next
            trial.supervisor.step()
        yield hour


def panels(trial: Trial, report: Report) -> Iterator[str]:
    """Lines of what the dashboard's panels on this trial would show now."""
    waiting = sum(row.message.due is not None for row in trial.store.outbox.messages(trial.name))
    watched = {trial.name: Watched(trial, waiting, report)}
    families = text_string_to_metric_families(Metrics(lambda: 0.0, lambda: watched).text().decode())
    samples = {family.name: family.samples for family in families}
    for panel in json.loads((ROOT / "deploy/grafana/dashboard.json").read_text())["panels"]:
        told = []
        for target in panel["targets"]:
            for name in re.findall(r"ranktrial_trial_\w+", target["expr"]):
                of = re.search(r'status=~"([\w|]+)"', target["expr"])
                for one in samples[name]:
                    labels = [value for label, value in one.labels.items() if label != "trial"]
                    if (one.name.endswith("_state") and not one.value) or (of and labels[0] not in of[1].split("|")):
                        continue
                    value = report.pace.latest - one.value if "timestamp" in name and one.value else one.value
                    told.append(" ".join([*labels, f"{value:.4g}"]))
        if told:
            yield f"{panel['title']}: {', '.join(told)}"


def picture(chromium: Browser, folder: Path, name: str, report: Report, now: float) -> None:
    """Take pictures of the page."""
    file = folder / "report.html"
    file.write_text(report_html(report.to_dict(), str(report), datetime.fromtimestamp(now, UTC)), encoding="utf-8")
    for width, options in SCREENS.items():
        page = chromium.new_page(**options)
        page.goto(file.as_uri())
        page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
        page.close()
    file.unlink()


def main(folder: Path, story: str = "better") -> None:
    """Live through the week, print what is sent, and look at the page when it tells something."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{story}.db").unlink(missing_ok=True)
    warm_up()
    clock, of, seen = Clock(), world(story == "better"), 0
    with receiving() as receiver, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        trial = Trial.create(
            folder / f"{story}.db", "shoes", k=K, seed=1, smallest=0.02, clock=clock, background=False, timeout=60.0,
            ramp=[(0.05, "1d"), (0.25, "1d"), (1.0, None)], guards={"clicks": 0.05, "fallbacks": 0.01},
            at_least="7d", at_most="28d", then="serve winner", webhooks=[Webhook(receiver.url, SECRET)],
        )  # fmt: skip
        for hour in hours(trial, of, clock):
            news, seen = receiver.bodies[seen:], len(receiver.bodies)
            for body in news:
                print(f"{body['time']}  {body['type']}\n    {body['text']}")
            if news or hour % 24 == 11:
                report = trial.report()
                name = f"{story}-{hour // 24 + 1}-{hour % 24:02d}-{news[-1]['type'] if news else 'noon'}".replace(
                    " ", "-"
                )
                picture(chromium, folder, name, report, clock.now)
                print("\n".join(f"        {line}" for line in panels(trial, report)), flush=True)
            if trial.stopped and not news:
                break
        chromium.close()
        trial.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
