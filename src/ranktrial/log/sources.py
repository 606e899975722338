"""The arrays of a log: from a pair and the policies that showed its queries, from single designs, and from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, IntArray, offsets_of
from ranktrial.covariates import checked_names, is_number
from ranktrial.ids import text_id, text_ids
from ranktrial.log.events import LoggedEvents
from ranktrial.log.units import first_seen
from ranktrial.metrics import checked_action, millionths
from ranktrial.rankings import Mixture, Pair, PlackettLuce
from ranktrial.segments import MOST_VALUES, NO_SEGMENTS, OTHER, Segments
from ranktrial.times import CLOCKS, Time, seconds

Policy = Mixture | PlackettLuce

# --- from a pair and its policies -------------------------------------------------------------------------------------


def checked_impressions(rankings: ArrayLike, clicks: ArrayLike) -> tuple[DocumentArray, BoolArray]:
    """Shapes agree, nothing is clicked where nothing is shown."""
    given = np.asarray(rankings)
    if given.size and not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"rankings hold {given.dtype}, must hold document ids (whole numbers)")
    table, flags = given.astype(np.int32), np.asarray(clicks, bool)
    if table.ndim != 2 or table.shape != flags.shape:
        raise ValueError(f"rankings are {table.shape}, clicks {flags.shape}: must be the same (impressions, k)")
    hollow = np.argwhere(flags & (table == NO_DOCUMENT))
    if len(hollow):
        raise ValueError(f"impression {hollow[0][0]}: a click at rank {hollow[0][1] + 1}, where nothing was shown")
    strange = np.argwhere(table < NO_DOCUMENT)
    if len(strange):
        raise ValueError(f"impression {strange[0][0]}: document {table[tuple(strange[0])]}, must be at least -1")
    ordered = np.sort(table, axis=1)
    twice = np.argwhere((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_DOCUMENT))
    if len(twice):
        raise ValueError(f"impression {twice[0][0]}: document {ordered[twice[0][0], twice[0][1]]} is shown twice")
    return table, flags


def checked_policies(policies: Policy | Sequence[Policy], pair: Pair) -> list[Policy]:
    known = list(policies) if isinstance(policies, Sequence) else [policies]
    for version, policy in enumerate(known):
        if not isinstance(policy, Mixture | PlackettLuce):
            hint = f"; what a method shows is {policy!r}.policy(pair)" if hasattr(policy, "displays") else ""
            raise TypeError(f"policy {version} is {policy!r}, must be a Mixture or a PlackettLuce{hint}")
        if (policy.n_documents, policy.k) != (pair.n_documents, pair.k):
            raise ValueError(
                f"policy {version} shows {policy.k} of {policy.n_documents} documents, the pair {pair.k} of {pair.n_documents}"
            )
        if isinstance(policy, PlackettLuce) and not np.array_equal(policy.offsets, pair.offsets):
            raise ValueError(f"policy {version} divides the documents among queries otherwise than the pair")
    return known


def queries_of(table: DocumentArray, pair: Pair) -> IntArray:
    """The query of each impression, from its documents, which must all belong to it."""
    if table.max() >= pair.n_documents:
        raise ValueError(f"the log shows document {table.max()}, the pair has {pair.n_documents}")
    first = table[:, 0]
    if np.any(first == NO_DOCUMENT):
        raise ValueError(f"impression {int(np.argmax(first == NO_DOCUMENT))} shows nothing")
    queries = np.searchsorted(pair.offsets, first, side="right") - 1
    inside = (table >= pair.offsets[queries][:, None]) & (table < pair.offsets[queries + 1][:, None])
    foreign = np.argwhere(~inside & (table != NO_DOCUMENT))
    if len(foreign):
        at, rank = foreign[0]
        raise ValueError(f"impression {at} of query {queries[at]} shows document {table[at, rank]} of another query")
    return np.asarray(queries, np.int64)


def of_pair(
    pair: Pair,
    policies: Sequence[Policy],
    versions: IntArray,
    queries: IntArray,
    table: DocumentArray,
    clicks: BoolArray,
    units: ArrayLike | None,
    times: ArrayLike | None,
    rows: IntArray | None = None,
) -> dict[str, Any]:
    """A design for every version and query of the pair; ``rows`` are those of the policies, where they are known."""
    n, k, nq, nd = len(table), pair.k, pair.n_queries, pair.n_documents
    mixtures = [policy for policy in policies if isinstance(policy, Mixture)]
    listed = len(mixtures) == len(policies)
    design = versions * nq + queries
    if listed:
        shown = np.concatenate([mixture.rankings for mixture in mixtures])
        row_offsets = np.concatenate([[0], *(np.diff(mixture.offsets) for mixture in mixtures)]).cumsum()
        weights = np.concatenate([mixture.weights for mixture in mixtures])
        row = _rows_showing(table, design, shown, row_offsets) if rows is None else rows
    else:
        keys, row = np.unique(np.column_stack([design, table]), axis=0, return_inverse=True)
        shown, row = keys[:, 1:].astype(np.int32), row.ravel()
        row_offsets = np.searchsorted(keys[:, 0], np.arange(len(policies) * nq + 1))
        weights = np.full(len(shown), np.nan)
    # Candidates: what either list or any row shows.
    owner = np.repeat(np.arange(len(row_offsets) - 1), np.diff(row_offsets))
    tops = np.concatenate([pair.top_a, pair.top_b], axis=1)
    cells = [(owner[:, None] * nd + shown)[shown != NO_DOCUMENT]]
    for version in range(len(policies)):
        cells.append(((version * nq + np.arange(nq))[:, None] * nd + tops)[tops != NO_DOCUMENT])
    slots = np.sort(np.concatenate(cells))  # np.unique hashes, which takes five times as long for so many
    slots = slots[np.append(True, slots[1:] != slots[:-1])] if len(slots) else slots
    of_design, document = np.divmod(slots, max(nd, 1))
    ranks = pair.ranks
    places = np.searchsorted(slots, owner[:, None] * nd + shown)
    placement = None
    if not listed:
        by_version = [policy.placement() for policy in policies]
        placement = np.stack(by_version)[of_design // nq, document]
    return {
        "k": k,
        "queries": pair.queries,
        "documents": pair.ids,
        "document_query": np.repeat(np.arange(nq), np.diff(pair.offsets)),
        "query": np.tile(np.arange(nq), len(policies)),
        "beliefs": np.repeat(np.arange(len(policies)), nq),
        "slot_offsets": np.searchsorted(of_design, np.arange(len(policies) * nq + 1)),
        "document": document,
        "rank_a": ranks[0][document],
        "rank_b": ranks[1][document],
        "row_offsets": row_offsets,
        "rankings": np.where(shown == NO_DOCUMENT, -1, places),
        "weights": weights,
        "design": design,
        "row": row,
        "unit": np.arange(n) if units is None else _unit_numbers(units, n),
        "time": np.arange(n) if times is None else np.asarray(times, np.int64),
        "clicks": clicks,
        "plain": listed and rows is not None and all(mixture.plain for mixture in mixtures),
        "theta": pair.theta,
        "given_placement": placement,
    }


def _unit_numbers(units: ArrayLike, n: int) -> IntArray:
    names = np.asarray(units)
    if names.shape != (n,):
        raise ValueError(f"units have shape {names.shape}, the log {n} impressions: must be one each")
    return first_seen(names)[1]


def _rows_showing(table: DocumentArray, design: IntArray, shown: DocumentArray, row_offsets: IntArray) -> IntArray:
    """The first row of each impression's design that shows what it shows."""
    owner = np.repeat(np.arange(len(row_offsets) - 1), np.diff(row_offsets))
    both = np.column_stack([np.concatenate([owner, design]), np.concatenate([shown, table])])
    _, first, same = np.unique(both, axis=0, return_index=True, return_inverse=True)
    row = first[same.ravel()][len(shown) :]
    strange = np.flatnonzero(row >= len(shown))
    if len(strange):
        at = int(strange[0])
        raise ValueError(f"impression {at} shows {table[at].tolist()}, which its policy never shows for that query")
    return np.asarray(row, np.int64)


# --- from designs and records -----------------------------------------------------------------------------------------

KEYS = (  # of a record
    "query", "a", "b", "shown", "clicked", "rankings", "split", "arm", "unit", "time", "events", "segment", "covariates",
)  # fmt: skip
EVENT_KEYS = "document", "action", "value", "time", "event_id"  # of an event of a record
SEGMENT_HINT = "is {}, must be attributes and their values, such as {{'device': 'phone'}}"
COVARIATES_HINT = "are {}, must be numbers by their names, such as {{'clicks_last_month': 3}}"
NOTHING = 255  # instead of a slot: nothing stands there


class RecordedDesign(NamedTuple):
    """A design read from a record, or from a row of the table of designs, with candidates of its own.

    Attributes:
        query: Its text.
        documents: Ids of the candidates.
        a: Numbers of those in A's top k, from the top; b those in B's.
        rankings: Of such numbers, ``(rankings, k)``, NOTHING past the end.
        weights: Probability of each ranking.
    """

    query: str
    documents: tuple[str, ...]
    a: IntArray
    b: IntArray
    rankings: IntArray
    weights: FloatArray

    @classmethod
    def of(
        cls,
        query: str,
        a: tuple[str, ...],
        b: tuple[str, ...],
        rankings: tuple[tuple[tuple[str, ...], float], ...] | None,
        split: float,
        *,
        k: int,
    ) -> RecordedDesign:
        could = ((a, split), (b, 1 - split)) if rankings is None else rankings
        slot_of: dict[str, int] = {}
        numbered = [[slot_of.setdefault(d, len(slot_of)) for d in ids] for ids in (a, b, *(ids for ids, _ in could))]
        table = np.full((len(could), k), NOTHING)
        for row, slots in zip(table, numbered[2:]):
            row[: len(slots)] = slots
        weights = np.array([weight for _, weight in could], np.float64)
        lists = [np.array(slots, np.int64) for slots in numbered[:2]]
        return cls(query, tuple(slot_of), lists[0], lists[1], table, weights)


def flatten(designs: Sequence[RecordedDesign], k: int) -> dict[str, Any]:
    """The arrays of a ``Log`` that describe its designs."""
    queries = tuple(sorted({design.query for design in designs}))
    query_number = {query: number for number, query in enumerate(queries)}
    names = sorted({(design.query, document) for design in designs for document in design.documents})
    document_number = {name: number for number, name in enumerate(names)}
    slot_offsets = offsets_of([len(design.documents) for design in designs])
    rows = [len(design.weights) for design in designs]
    table = np.concatenate([design.rankings for design in designs] or [np.empty((0, k), np.uint8)]).astype(np.int64)
    first = np.repeat(slot_offsets[:-1], rows)
    rank_a, rank_b = (
        ranks_of(np.concatenate([*lists, np.empty(0, np.int64)]), [len(one) for one in lists], slot_offsets, k)
        for lists in ([design.a for design in designs], [design.b for design in designs])
    )
    return {
        "queries": queries,
        "documents": [document for _, document in names],
        "document_query": np.array([query_number[query] for query, _ in names], np.int64),
        "query": np.array([query_number[design.query] for design in designs], np.int64),
        "beliefs": np.zeros(len(designs), np.int64),
        "slot_offsets": slot_offsets,
        "document": np.array([document_number[d.query, name] for d in designs for name in d.documents], np.int64),
        "rank_a": rank_a,
        "rank_b": rank_b,
        "row_offsets": offsets_of(rows),
        "rankings": np.where(table == NOTHING, -1, table + first[:, None]),
        "weights": np.concatenate([design.weights for design in designs] or [np.empty(0)]),
    }


def ranks_of(slots: NDArray[Any], lengths: ArrayLike, slot_offsets: IntArray, k: int) -> IntArray:
    """Rank of every slot in one ranker's lists, k where it is not among them.

    Lists stand one after the other, given their lengths; slots are counted within designs.
    """
    ranks, sizes = np.full(slot_offsets[-1], k, np.int64), np.asarray(lengths, np.int64)
    at = slots.astype(np.int64) + np.repeat(slot_offsets[:-1], sizes)
    ranks[at] = np.arange(len(at)) - np.repeat(offsets_of(sizes)[:-1], sizes)
    return ranks


class RecordedEvent(NamedTuple):
    """An event read from a record: its rank from 0, action, amount in millionths, and microseconds after the record."""

    rank: int
    action: str
    amount: int
    delay: int


def _check_keys(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(given).difference(known), key=str):
        raise ValueError(f"the key {unknown[0]!r} is not known; keys are {', '.join(known)}")


def _read_record(record: Mapping[str, Any], k: int) -> tuple[tuple[Any, ...], int, list[bool]]:
    """The design behind a record, which of its rankings was shown, and the ranks that were clicked."""
    _check_keys(record, KEYS)
    if record["query"] is None or record["query"] != record["query"]:
        raise ValueError(f"query is {record['query']!r}, must be text")
    lists = {name: _ids(name, record[name])[:k] for name in ("a", "b", "shown")}
    a, b, shown = lists.values()
    split = checks.between("split", record.get("split", 0.5), 0, 1, open_ends=True)
    could = record.get("rankings")
    if could is not None:
        could = tuple((_ids("rankings", ids)[:k], float(weight)) for ids, weight in could)
        if abs(sum(weight for _, weight in could) - 1) > 1e-9:
            raise ValueError(
                f"the probabilities of its rankings sum to {sum(weight for _, weight in could):g}, not to 1"
            )
    rows = [a, b] if could is None else [ids for ids, _ in could]
    if shown not in rows:
        raise ValueError(f"shown is {list(shown)}, which is none of the rankings that could be shown")
    place = rows.index(shown)
    if could is None and "arm" in record:
        place = ("a", "b").index(checks.one_of("arm", str(record["arm"]).lower(), ("a", "b")))
        if rows[place] != shown:
            raise ValueError(f"arm is {record['arm']!r}, but shown is not that ranker's list")
    elif could is None and a == b:
        raise ValueError("both lists are the same: arm must say whose was shown")
    clicked, page = set(_ids("clicked", record.get("clicked", ()))), _ids("shown", record["shown"])
    if strange := clicked.difference(page):
        raise ValueError(f"clicked {sorted(strange)[0]!r} is not among the {len(page)} results shown")
    flags = [document in clicked for document in shown] + [False] * (k - len(shown))
    return (str(record["query"]), a, b, could, split), place, flags


def _ids(name: str, ids: Any) -> tuple[str, ...]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise ValueError(f"{name} is {ids!r}, must be a list of ids")
    return tuple(text_ids(name, ids))


def _unit_and_time(record: Mapping[str, Any], number: int) -> tuple[Hashable, float]:
    """The unit of a record, by itself without one, and its seconds, or its place among the records."""
    unit = text_id("unit", record["unit"]) if "unit" in record else number
    if "time" not in record:
        return unit, float(number)
    return unit, checks.at_least("time", seconds("time", record["time"]), 0)


def _read_events(record: Mapping[str, Any]) -> list[RecordedEvent]:
    """The events of a record, each once."""
    found: dict[Any, RecordedEvent] = {}
    page = _ids("shown", record["shown"])
    for number, event in enumerate(record.get("events") or (), 1):
        try:
            _check_keys(event, EVENT_KEYS)
            document, action = text_id("document", event["document"]), checked_action(event["action"])
            if document not in page:
                raise ValueError(f"document {document!r} is not among the {len(page)} results shown")
            moment = None if event.get("time") is None else seconds("time", event["time"])
            if moment is not None and "time" not in record:
                raise ValueError("it has a time, its search has none")
            delay = 0.0 if moment is None else moment - seconds("time", record["time"])
            if delay < -CLOCKS:
                raise ValueError(f"it happened {-delay:.0f} s before its search")
            amount = 0 if event.get("value") is None else millionths(event["value"])
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"event {number}: {_told(problem)}") from None
        same = event.get("event_id") or (document, action, amount, moment)
        found.setdefault(same, RecordedEvent(page.index(document), action, amount, max(round(delay * 1e6), 0)))
    return list(found.values())


def _read_mapping(record: Mapping[str, Any], name: str, fits: Callable[[Any], bool], hint: str) -> Mapping[str, Any]:
    """A mapping from names in a record, without those whose value is missing."""
    given = record.get(name) or {}
    known = {key: value for key, value in given.items() if value is not None} if isinstance(given, Mapping) else None
    if known is None or not all(isinstance(key, str) and fits(value) for key, value in known.items()):
        raise ValueError(f"{name} {hint.format(repr(given))}")
    return known


def _told(problem: Exception) -> object:
    return f"there is no {problem}" if isinstance(problem, KeyError) else problem


def _attributes(given: Sequence[Mapping[str, str]]) -> Segments:
    """Attributes of searches, with their most frequent values."""
    counts = Counter(pair for one in given for pair in one.items() if pair[1] != OTHER)
    values: dict[str, list[str]] = {}
    for name, value in sorted(counts, key=lambda pair: (-counts[pair], pair))[:MOST_VALUES]:
        values.setdefault(name, []).append(value)
    return Segments.of(values) if values else NO_SEGMENTS


def of_records(records: Iterable[Mapping[str, Any]], k: int, read_at: Time | None = None) -> dict[str, Any]:
    """See ``Log.from_records``."""
    checks.whole("k", k, 1, NOTHING)
    designs: dict[tuple[Any, ...], int] = {}
    impressions: list[tuple[int, int, int, float]] = []
    units: dict[Hashable, int] = {}
    clicks: list[list[bool]] = []
    events: list[tuple[int, RecordedEvent]] = []
    segments: list[Mapping[str, str]] = []
    known: list[Mapping[str, float]] = []
    last, timed = 0.0, False
    for number, record in enumerate(records):
        try:
            key, place, clicked = _read_record(record, k)
            unit, moment = _unit_and_time(record, number)
            after = _read_events(record)
            segments.append(_read_mapping(record, "segment", lambda value: isinstance(value, str), SEGMENT_HINT))
            known.append(_read_mapping(record, "covariates", is_number, COVARIATES_HINT))
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"record {number + 1}: {_told(problem)}") from None
        events += [(number, event) for event in after if event.rank < k]
        timed = timed or any(event.get("time") is not None for event in record.get("events") or ())
        last = max(last, moment, *(moment + event.delay / 1e6 for event in after))
        at = designs.setdefault(key, len(designs))
        impressions.append((at, place, units.setdefault(unit, len(units)), moment))
        clicks.append(clicked)
    if not impressions:
        raise ValueError("the log is empty")
    arrays = flatten([RecordedDesign.of(*key, k=k) for key in designs], k)
    design, row, unit_number, time = (np.array(column) for column in zip(*impressions))
    order = np.argsort(time, kind="stable")
    position = np.argsort(order)
    actions = sorted({event.action for _, event in events})
    until = seconds("read_at", read_at) if read_at is not None else last if timed else None
    attributes = _attributes(segments)
    names = checked_names(sorted({name for one in known for name in one}))
    return dict(
        k=k,
        **arrays,
        design=design[order],
        row=arrays["row_offsets"][design[order]] + row[order],
        unit=first_seen(unit_number[order])[1],
        time=(time[order] * 1e6).astype(np.int64),
        clicks=np.array(clicks, bool)[order],
        plain=all(could is None for _, _, _, could, _ in designs),
        events=LoggedEvents.of(
            position[[number for number, _ in events]] if events else [],
            rank=[event.rank for _, event in events],
            action=[actions.index(event.action) for _, event in events],
            amount=[event.amount for _, event in events],
            delay=[event.delay for _, event in events],
        ),
        actions=tuple(actions),
        read_at=None if until is None else round(until * 1e6),
        attributes=attributes,
        segment=attributes.codes(segments)[order] if attributes else np.empty(0, np.int64),
        covariates=np.array([[one.get(name, np.nan) for name in names] for one in known])[order],
        covariate_names=names,
    )
