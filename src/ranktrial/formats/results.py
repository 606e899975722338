"""Results as data frames: reports, estimates, plans, position bias, logs, pairs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

import numpy as np

from ranktrial.analysis import BiasFit, Estimate, Plan
from ranktrial.analysis.estimators.results import SegmentBias
from ranktrial.analysis.segments import SegmentAnswer
from ranktrial.covariates import as_json
from ranktrial.formats.frames import make_frame
from ranktrial.log import Log
from ranktrial.position_bias import PositionBias
from ranktrial.position_bias.jackknife import jackknife_variance
from ranktrial.rankings import Pair
from ranktrial.report.files import report_rows
from ranktrial.report.schema import Report

ANSWERED = (
    "metric", "attribute", "value", "searches", "visitors", "clicks", "share", "difference", "shrunken", "discovery", "rate",
)  # fmt: skip


def to_frame(result: Any, backend: str = "pandas") -> Any:
    """Make a data frame of a result.

    A row is one number of a trial's report, as in its CSV file; an ``Estimate`` with its 95 % interval and what it rests on; a
    method of a ``Plan``; a rank of a ``PositionBias`` or of what ``fit_position_bias`` found, or of each segment of its
    ``by_segment``; one of several answers by segment; a search of a ``Log``, as ``read_log`` reads it, with attributes,
    covariates and events; or a query of a ``Pair`` with both lists, as ``pair_from_frame`` reads it.

    Args:
        result: One of these.
        backend: "pandas", "polars" or "pyarrow".

    >>> from ranktrial import Log
    >>> search = {"query": "shoes", "a": ["x", "y"], "b": ["y", "z"]}
    >>> log = Log.from_records([{**search, "shown": ["x", "y"], "clicked": ["y"]}], k=2)
    >>> to_frame(log, "polars")["clicked"].to_list()
    [['y']]
    """
    if isinstance(result, Sequence) and result and all(isinstance(one, SegmentAnswer) for one in result):
        return make_frame(_answer_columns(result), backend)
    columns = next((make(result) for kind, make in COLUMNS.items() if isinstance(result, kind)), None)
    if columns is None:
        known = ", ".join(kind.__name__ for kind in COLUMNS)
        raise TypeError(f"a frame is made of {known}, not of {type(result).__name__}")
    return make_frame(columns, backend)


def _by_name(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    told = list(rows)
    names = dict.fromkeys(name for row in told for name in row)
    return {name: [row.get(name) for row in told] for name in names}


def _report_columns(report: Report) -> dict[str, list[Any]]:
    """Numbers as such, and null where there is none."""
    found = _by_name(report_rows(report))
    texts = ("part", "name", "time", "status", "text")
    return {
        name: [None if one in (None, "") else one if name in texts else float(one) for one in column]
        for name, column in found.items()
    }


def _estimate_columns(found: Estimate) -> dict[str, list[Any]]:
    interval = found.confidence_interval()
    row = {"delta": found.delta, "standard_error": found.standard_error, "low": interval.low, "high": interval.high}
    names = ("impressions", "units", "effective_clicks", "largest_weight")
    return _by_name([{**row, **{name: getattr(found, name) for name in names}}])


def _bias_columns(bias: PositionBias) -> dict[str, list[Any]]:
    intervals = bias.confidence_interval()
    return {
        "rank": list(range(1, bias.k + 1)),
        "theta": bias.theta.tolist(),
        "standard_error": bias.standard_error.tolist(),
        "low": [float(one.low) for one in intervals],
        "high": [float(one.high) for one in intervals],
    }


def _log_columns(log: Log) -> dict[str, list[Any]]:
    """A log as the format ``impressions``: an A/B test by its arms, any other by the rankings that could be shown."""
    if np.isnan(log.weights).any():
        raise ValueError("the rankings that this log could have shown are too many to list them in a frame")
    names = [str(log.documents[number]) for number in log.document]

    def ids(slots: Iterable[int]) -> list[str]:
        return [names[slot] for slot in slots if slot >= 0]

    def ranked(design: int, ranks: Any) -> list[str]:
        first, last = log.slot_offsets[design], log.slot_offsets[design + 1]
        order = np.argsort(ranks[first:last], kind="stable") + first
        return ids(slot for slot in order if ranks[slot] < log.k)

    rows = [ids(row) for row in log.rankings.tolist()]
    designs = []
    plain = log.plain and bool(np.all(np.diff(log.row_offsets) == 2))
    for design, query in enumerate(log.query):
        first, last = log.row_offsets[design], log.row_offsets[design + 1]
        told: dict[str, Any] = {"query": str(log.queries[query])}
        told |= {"a": ranked(design, log.rank_a), "b": ranked(design, log.rank_b)}
        if plain:
            told["split"] = float(log.weights[first])
        else:
            told["rankings"] = json.dumps([[rows[row], float(log.weights[row])] for row in range(first, last)])
        designs.append(told)
    found = _by_name(designs[design] for design in log.design)
    found["shown"] = [rows[row] for row in log.row]
    clicks = [np.flatnonzero(flags) for flags in log.clicks]
    found["clicked"] = [[shown[rank] for rank in ranks] for shown, ranks in zip(found["shown"], clicks)]
    if plain:
        found["arm"] = np.where(log.arm > 0, "a", "b").tolist()
    if log.attributes:
        codes, number = np.unique(log.segment, return_inverse=True)
        texts = [json.dumps(log.attributes.decoded(int(code))) for code in codes]
        found["segment"] = [texts[at] for at in number]
    if log.covariate_names:
        found["covariates"] = as_json(log.covariate_names, log.covariates)
    if len(log.events):
        found["events"] = _events(log, found["shown"])
    return found | {"unit": log.unit.tolist(), "time": (log.time / 1e6).tolist()}


def _events(log: Log, shown: Sequence[Sequence[str]]) -> list[str | None]:
    """Events after each search on results that it showed, as JSON."""
    told: dict[int, list[dict[str, Any]]] = {}
    events = log.events
    moment = ((log.time[events.at] + events.delay) / 1e6).tolist()
    columns = (column.tolist() for column in (events.at, events.rank, events.action, events.amount))
    for number, (at, rank, action, amount, time) in enumerate(zip(*columns, moment)):
        if 0 <= rank < len(shown[at]):
            value = f"{Decimal(amount).scaleb(-6).normalize():f}"
            event = {"event_id": number, "document": shown[at][rank], "action": log.actions[action]}
            told.setdefault(at, []).append({**event, "value": value, "time": time})
    return [json.dumps(told[at]) if at in told else None for at in range(len(log))]


def _segment_columns(bias: SegmentBias) -> dict[str, list[Any]]:
    """A row for each rank of each value that has a theta of its own."""
    rows = []
    for number in bias.own:
        error = np.sqrt(np.diag(jackknife_variance(bias.without[number])))
        for rank, (theta, spread) in enumerate(zip(bias.thetas[number].tolist(), error.tolist()), 1):
            told = {"attribute": bias.attribute, "value": bias.values[number], "rank": rank}
            rows.append({**told, "theta": theta, "standard_error": spread})
    return _by_name(rows)


def _answer_columns(answers: Sequence[SegmentAnswer]) -> dict[str, list[Any]]:
    def row(answer: SegmentAnswer) -> dict[str, Any]:
        told = {name: getattr(answer, name) for name in ANSWERED}
        return {**told, "low": answer.interval.low, "high": answer.interval.high, "lift": answer.lift.share}

    return _by_name(map(row, answers))


def _pair_columns(pair: Pair) -> dict[str, list[Any]]:
    def lists(rankings: Any) -> list[list[str]]:
        ends = zip(rankings.offsets[:-1], rankings.offsets[1:])
        return [[str(pair.ids[document]) for document in rankings.documents[first:last]] for first, last in ends]

    return {"query": [str(query) for query in pair.queries], "a": lists(pair.a), "b": lists(pair.b)}


COLUMNS: dict[type, Callable[[Any], dict[str, list[Any]]]] = {
    Report: _report_columns,
    Estimate: _estimate_columns,
    Plan: lambda plan: _by_name(asdict(row) for row in plan.rows),
    PositionBias: _bias_columns,
    SegmentBias: _segment_columns,
    BiasFit: lambda fit: _bias_columns(fit.bias),
    Log: _log_columns,
    Pair: _pair_columns,
}
