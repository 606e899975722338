"""Other people's logs: what is right is read whole, what is wrong is refused with its row, and nothing is half imported."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from ranktrial.analysis import estimate
from ranktrial.formats import read_log, read_source, save
from ranktrial.log import Log
from ranktrial.methods import TeamDraft
from ranktrial.rankings import Pair
from ranktrial.trec.files import FormatError

THETA = [1.0, 0.6, 0.4]
RNG = np.random.default_rng(4)
LISTS = {f"q{q}": [RNG.permutation([f"d{q}-{i}" for i in range(6)]).tolist() for _ in range(2)] for q in range(5)}


def searches(n: int = 400, *, k: int = 3, units: int = 150) -> list[dict[str, Any]]:
    """An A/B test with both lists, unevenly split, of users who come again."""
    rng, records = np.random.default_rng(7), []
    for at in range(n):
        query = f"q{rng.integers(len(LISTS))}"
        a, b = LISTS[query]
        arm = "a" if rng.random() < 0.3 else "b"
        shown = (a if arm == "a" else b)[:k]
        clicked = [d for d, seen in zip(shown, THETA) if rng.random() < 0.5 * seen]
        unit = f"user {rng.integers(units)}"
        records.append(
            {"query": query, "a": a, "b": b, "shown": shown, "clicked": clicked, "arm": arm, "split": 0.3}
            | {"unit": unit, "time": 1e9 + at}
        )
    return records


def write(file: Path, records: Sequence[dict[str, Any]]) -> Path:
    """Records as JSON lines, CSV (lists as JSON), or Parquet, by the suffix."""
    if file.suffix == ".csv":
        with file.open("w", newline="") as out:
            table = csv.DictWriter(out, list(records[0]))
            table.writeheader()
            table.writerows({k: json.dumps(v) if isinstance(v, list) else v for k, v in one.items()} for one in records)
        return file
    lines = file.with_suffix(".jsonl")
    lines.write_text("".join(json.dumps(one) + "\n" for one in records))
    if file.suffix == ".parquet":
        duckdb.execute(f"COPY (SELECT * FROM read_json('{lines}')) TO '{file}' (FORMAT parquet)")
        lines.unlink()
    return file


def rows(source: Any, table: str) -> list[Any]:
    return list(source.connection.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall())


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_file_says_what_its_records_say(suffix: str, tmp_path: Path) -> None:
    records = searches()
    read, expected = read_log(write(tmp_path / f"log{suffix}", records)), Log.from_records(records, k=3)
    for estimator in ("means", "adjusted", "constant", "direct"):
        options: dict[str, Any] = {"prediction": 0.3} if estimator == "direct" else {}
        found, told = (estimate(log, theta=THETA, estimator=estimator, **options) for log in (read, expected))
        np.testing.assert_allclose(found.x, told.x, atol=1e-12)
        assert found.standard_error == pytest.approx(told.standard_error, rel=1e-12)


def test_rankings_with_their_probabilities(tmp_path: Path) -> None:
    could = [[["x", "z"], 0.25], [["y", "z"], 0.75]]
    record = {"query": "q", "a": ["x"], "b": ["y"], "shown": ["y", "z"], "clicked": ["y"], "rankings": could}
    for suffix in (".jsonl", ".csv"):
        log = read_log(write(tmp_path / f"log{suffix}", [record]))
        assert estimate(log, theta=[1.0, 0.5], estimator="ips").delta == pytest.approx(-1 / 0.75)


def test_interleaved_pages_have_the_probabilities_of_their_method(tmp_path: Path) -> None:
    """Team-draft on two documents in two orders: each page has probability 1/2, whoever picked."""
    record = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "clicked": ["y"]}
    file = write(tmp_path / "log.jsonl", [{**record, "shown": ["x", "y"]}, {**record, "shown": ["y", "x"]}])
    log = read_log(file, method=TeamDraft())
    pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2)
    np.testing.assert_allclose(
        log.placement_of(np.arange(log.n_slots)), TeamDraft().displays(pair).mixture.placement(), atol=1e-12
    )
    assert not log.plain
    # lambda = (+-0.5), rho = 0.75: clicks on y count -0.5 / 0.75 each.
    assert estimate(log, theta=[1.0, 0.5], estimator="ips").delta == pytest.approx(-0.5 / 0.75)


def test_clicks_below_the_last_rank_that_counts_are_left_out(tmp_path: Path) -> None:
    """k cuts pages: what was clicked further down was shown, and is no mistake."""
    records = searches()
    first = [{**one, "clicked": [d for d in one["clicked"] if d in one["shown"][:2]]} for one in records]
    assert first != records
    read, expected = read_log(write(tmp_path / "log.jsonl", records), k=2), Log.from_records(first, k=2)
    for log in (read, Log.from_records(records, k=2)):
        np.testing.assert_array_equal(log.clicks, expected.clicks)
    queries, events = ubi(tmp_path)
    pages = read_source(queries, events=events, k=1)
    assert [row[-4:-2] for row in rows(pages, "impressions")] == [(["x"], [0]), (["y"], [0])]


@pytest.mark.parametrize(
    "told",
    [
        1767225600.25, 1767225600250, 1767225600250000, "1767225600250", "2026-01-01T00:00:00.25Z", "2026-01-01 00:00:00.25",
        "2026-01-01T01:00:00.25+01:00", "2025-12-31T19:00:00.25-05:00",
    ],
)  # fmt: skip
def test_a_time_however_it_is_told(told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    source = read_source(write(tmp_path / "log.jsonl", [{**GOOD, "time": told}]))
    assert rows(source, "impressions")[0][1:3] == (date(2026, 1, 1), 1767225600250000)


def test_a_time_of_parquet_has_the_zone_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    write(tmp_path / "log.jsonl", [GOOD])
    for kind in ("TIMESTAMPTZ", "TIMESTAMP"):
        time = f"{kind} '2026-01-01 00:00:00.25{'+00' if kind == 'TIMESTAMPTZ' else ''}'"
        file = tmp_path / f"{kind}.parquet"
        duckdb.execute(f"COPY (SELECT *, {time} AS time FROM read_json('{tmp_path}/log.jsonl')) TO '{file}'")
        assert rows(read_source(file), "impressions")[0][1:3] == (date(2026, 1, 1), 1767225600250000)


def flat(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "search_id": at,
            "user": one["unit"],
            "qid": one["query"],
            "sku": d,
            "rank": r,
            "click": int(d in one["clicked"]),
        }
        for at, one in enumerate(records)
        for r, d in enumerate(one["shown"], 1)
    ]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_row_for_each_result(suffix: str, tmp_path: Path) -> None:
    records = searches()
    source = read_source(write(tmp_path / f"flat{suffix}", flat(records)))
    assert (source.kind, source.format, source.k) == ("pages", "flat", 3)
    told = source.connection.execute("SELECT query, shown, clicked FROM impressions ORDER BY impression").fetchall()
    assert told == [(one["query"], one["shown"], [int(d in one["clicked"]) for d in one["shown"]]) for one in records]


def test_results_without_their_page_are_counted(tmp_path: Path) -> None:
    results = [{name: value for name, value in one.items() if name != "search_id"} for one in flat(searches())]
    source = read_source(write(tmp_path / "flat.csv", results))
    assert source.kind == "counts"
    counted: dict[tuple[str, str, int], list[int]] = {}
    for one in results:
        cell = counted.setdefault((one["qid"], one["sku"], one["rank"]), [0, 0])
        cell[0] += 1
        cell[1] += one["click"]
    assert rows(source, "counts") == sorted((*key, *map(float, cell)) for key, cell in counted.items())


def test_counts_by_row_and_by_column_are_the_same(tmp_path: Path) -> None:
    long = "query\tdocument\tposition\tshows\tclicks\n" + "q\tx\t1\t9\t4\nq\tx\t2\t5\t1\nq\ty\t2\t9\t0\n"
    wide = "qid\tdocid\tshows_pos1\tshows_pos2\tclicks_pos1\tclicks_pos2\n" + "q\tx\t9\t5\t4\t1\nq\ty\t0\t9\t0\t0\n"
    found = []
    for name, text in (("long.tsv", long), ("wide.tsv", wide)):
        (tmp_path / name).write_text(text)
        found.append(rows(read_source(tmp_path / name), "counts"))
    assert found[0] == found[1] == [("q", "x", 1, 9.0, 4.0), ("q", "x", 2, 5.0, 1.0), ("q", "y", 2, 9.0, 0.0)]


def ubi(tmp_path: Path, suffix: str = ".jsonl", **event: Any) -> tuple[Path, Path]:
    asked = [("1", "shoes", "00:00", ["x", "y", "z"]), ("2", "shoes", "00:09", ["y", "x"]), ("3", "none", "01:00", [])]
    queries = [
        {"query_id": page, "user_query": query, "client_id": "c", "query_response_hit_ids": hits}
        | {"timestamp": f"2026-01-05T10:{time}Z"}
        for page, query, time, hits in asked
    ]
    clicked = [("1", "y"), ("1", "y"), ("2", "x")]
    events = [
        {
            "action_name": "click",
            "query_id": page,
            "event_attributes": {"object": {"object_id": d}, "position": {"ordinal": 2}},
        }
        for page, d in clicked
    ]
    events += [{"action_name": "product_hover", "query_id": "9", "event_attributes": {"object": {"object_id": "q"}}}]
    if event:
        events.append(
            {"action_name": "click", "query_id": "1", "event_attributes": {"object": {"object_id": "x"}}} | event
        )
    return write(tmp_path / f"queries{suffix}", queries), write(tmp_path / f"events{suffix}", events)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_user_behavior_insights(suffix: str, tmp_path: Path) -> None:
    queries, events = ubi(tmp_path, suffix)
    source = read_source(queries, events=events)
    told = source.connection.execute("SELECT time, query, shown, clicked FROM impressions ORDER BY time").fetchall()
    assert [row[1:] for row in told] == [("shoes", ["x", "y", "z"], [0, 1, 0]), ("shoes", ["y", "x"], [0, 1])]
    assert told[1][0] - told[0][0] == 9_000_000


def test_open_bandit(tmp_path: Path) -> None:
    text = ",timestamp,item_id,position,click,propensity_score,user_feature_0\n"
    text += "0,2019-11-24 00:00:00.1+00:00,14,3,0,0.0125,a\n1,2019-11-24 00:00:01+00:00,14,1,1,0.0125,a\n"
    (tmp_path / "all.csv").write_text(text)
    source = read_source(tmp_path / "all.csv")
    assert (source.kind, source.k) == ("items", 3)
    assert [row[2:] for row in rows(source, "items")] == [("", "14", 3, 0, 0.0125), ("", "14", 1, 1, 0.0125)]


# --- what is wrong --------------------------------------------------------------------------------------------------------

GOOD = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"], "clicked": ["y"]}
FLAT = "query,document,position,clicked\nq,x,1,0\nq,y,2,1\n"
BAD: dict[str, tuple[str, str | bytes, int | None, str]] = {
    "wrong columns": ("x.csv", "name,place\nq,1\n", None, "none of the formats"),
    "a column is missing": ("x.jsonl", json.dumps({"query": 1, "a": [], "b": [], "shown": []}), None, "no column 'clicked'"),
    "half a line": ("x.csv", FLAT + "q,z", 4, "Expected Number of Columns: 4 Found: 2; must be 4 columns: query,document"),
    "half a line of JSON": ("x.jsonl", json.dumps(GOOD) + '\n{"query": "q", "a": ["x"', 2, "no JSON"),
    "no object": ("x.jsonl", "\n\n[1, 2]\n", 3, "must be a JSON object on a line of its own, not array"),
    "no text": ("x.csv", (FLAT + "q,\xff,3,0\n").encode("latin-1"), 4, "not UTF-8 text; must be 4 columns"),
    "no text of JSON": ("x.jsonl", b"\n\xff\xfe{}\n", 2, "not UTF-8 text; must be a JSON object"),
    "empty lines before half a line": ("x.csv", FLAT + '\n"q\nr",x,1,0\n\n\nq,z', 9, "Found: 2; must be 4 columns"),
    "empty lines before a wrong one": ("x.csv", FLAT + '\n"q\nr",x,1,0\n\n\nq,z,0,0\n', 9, "position is 0"),
    "cut off": ("x.jsonl.gz", gzip.compress(b"\n" * 9)[:-4], 10, "the gzip file ends too early"),
    "cut off as CSV": ("x.csv.gz", gzip.compress(FLAT.encode())[:-4], 4, "the gzip file ends too early"),
    "no gzip": ("x.jsonl.gz", json.dumps(GOOD), 1, "is named .gz but does not start like a gzip file"),
    "negative position": ("x.csv", FLAT + "q,z,-1,0\n", 4, "position is -1, must count from 1"),
    "position from 0": ("x.csv", FLAT + "q,z,0,0\n", 4, "position is 0, must count from 1"),
    "half a position": ("x.csv", FLAT + "q,z,1.5,0\n", 4, "position must be a whole number from 1"),
    "neither clicked nor not": ("x.csv", FLAT + "q,z,3,maybe\n", 4, "clicked must be 1 or 0"),
    "no document": ("x.csv", FLAT + "q,,3,0\n", 4, "document is missing"),
    "clicks on what was not shown": ("x.jsonl", "\n" + json.dumps({**GOOD, "clicked": ["z"]}), 2, "clicked z is not among"),
    "neither list": ("x.jsonl", json.dumps({**GOOD, "shown": ["y", "z"]}), 1, "neither the first 2 of a nor of b"),
    "the same lists": ("x.jsonl", json.dumps({**GOOD, "b": ["x", "y"]}), 1, "both lists are the same: arm must say"),
    "the other arm": ("x.jsonl", json.dumps({**GOOD, "arm": "b"}), 1, "arm is b, but shown is not the list"),
    "no arm": ("x.jsonl", json.dumps({**GOOD, "arm": "c"}), 1, "arm is c, must be a or b"),
    "split": ("x.jsonl", json.dumps({**GOOD, "split": 1.5}), 1, "strictly between 0 and 1"),
    "twice": ("x.jsonl", json.dumps({**GOOD, "a": ["x", "x"]}), 1, "a has an id twice"),
    "no list": ("x.jsonl", json.dumps({**GOOD, "a": "xy"}), 1, "a must be a list of ids"),
    "probabilities": ("x.jsonl", json.dumps({**GOOD, "rankings": [[["x", "y"], 0.5]]}), 1, "sum to 0.5, not to 1"),
    "time": ("x.jsonl", json.dumps({**GOOD, "time": "yesterday"}), 1, "time must be seconds since 1970"),
    "a time before 1970": ("x.jsonl", json.dumps({**GOOD, "time": -1}), 1, "time must be seconds since 1970"),
    "a unit that is no number": ("x.csv", "query,document,position,clicked,user\nq,x,1,0,u\nq,y,2,1,NaN\n", 3, "user is NaN"),
    "no unit": ("x.jsonl", json.dumps({**GOOD, "unit": "u"}) + "\n" + json.dumps({**GOOD, "unit": None}), 2, "unit is missing"),
    "clicks for clicked": ("x.jsonl", json.dumps(GOOD).replace("clicked", "clicks"), None, "no column 'clicked'"),
    "clicks for clicked in one record": (
        "x.jsonl", json.dumps(GOOD) + "\n" + json.dumps(GOOD).replace("clicked", "clicks"), 2,
        'clicked is missing, but clicks is ["y"]: must be given as clicked',
    ),
    "rankings by another name in one record": (
        "x.jsonl", "".join(json.dumps({**GOOD, name: [[["x", "y"], 1]]}) + "\n" for name in ("rankings", "ranking")), 2,
        'rankings is missing, but ranking is [[["x","y"],1]]: must be given as rankings',
    ),
    "a click that is no list": ("x.jsonl", json.dumps({**GOOD, "clicked": "y"}), 1, 'clicked is y, must be a list of ids'),
    "a click without an id": ("x.jsonl", json.dumps({**GOOD, "clicked": [None]}), 1, "clicked has an empty id"),
    "a split that is no number": ("x.jsonl", json.dumps({**GOOD, "split": "half"}), 1, "strictly between 0 and 1"),
    "rankings that are no JSON": ("x.jsonl", json.dumps({**GOOD, "rankings": "x|y"}), 1, "rankings must be pairs of ids"),
    "more clicks than shows": ("x.csv", "query,document,rank,shows,clicks\nq,x,1,3,4\n", 2, "clicked more often"),
    "negative shows": ("x.csv", "query,document,position,shows,clicks\nq,x,1,-3,0\n", 2, "must be a number, not negative"),
    "propensity": ("x.csv", "document,position,click,propensity_score\nx,1,0,1.2\n", 2, "must be above 0"),
    "two at one rank": ("x.csv", "query,document,rank,clicked,search_id\nq,x,1,0,s\nq,y,1,0,s\n", 2, "two results at rank 1"),
    "two kinds of line ends": ("x.csv", FLAT.replace("\n", "\r\n") + "q,z,3,0\n", 4, "must be LF, or CR LF, in all"),
    "no such format": ("x.pdf", "", None, "a log must be .csv"),
    "empty": ("x.csv", "query,document,position,clicked\n", None, "there is no row in it"),
    "empty JSON lines": ("x.jsonl", "", None, "there is no row in it"),
    "a time far away": ("x.jsonl", json.dumps({**GOOD, "time": 1e300}), 1, "time must be seconds since 1970"),
    "no Parquet": ("x.parquet", "PAR1 not", None, "no Parquet that can be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    name, text, line, message = BAD[case]
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FormatError) as refusal:
        save(read_source(file), tmp_path / "log")
    assert message in refusal.value.problem
    assert refusal.value.line == line
    assert refusal.value.path == file
    assert not (tmp_path / "log").exists()


def test_a_unit_that_is_no_number_in_parquet(tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl", [GOOD, GOOD])
    file = tmp_path / "log.parquet"
    number = "CASE WHEN row_number() OVER () = 1 THEN 7 ELSE 'nan'::DOUBLE END"
    duckdb.execute(f"COPY (SELECT *, {number} AS unit FROM read_json('{tmp_path}/log.jsonl')) TO '{file}'")
    with pytest.raises(FormatError, match=r"row 2: unit is NaN|2: unit is NaN"):
        read_source(file)
    assert read_source(file, skip=True).skipped == 1


def test_a_click_before_its_query_is_refused(tmp_path: Path) -> None:
    queries, events = ubi(tmp_path, timestamp="2026-01-05T09:00:00Z")
    with pytest.raises(FormatError, match="a click 3600 s before query_id 1 was asked"):
        read_source(queries, events=events)
    assert read_source(queries, events=events, skip=True).skipped == 1
    queries, events = ubi(tmp_path, timestamp="2026-01-05T09:59:50Z")  # another clock
    assert read_source(queries, events=events).skipped == 0


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_garbage_is_counted_once_a_line_whatever_it_is(suffix: str, tmp_path: Path) -> None:
    """Bytes that are no text, halves of lines, lines written twice into one: as many as there are, and all others are read."""
    rng, file = np.random.default_rng(5), write(tmp_path / f"log{suffix}", flat(searches(2000)))
    lines = file.read_bytes().replace(b"\r\n", b"\n").splitlines()
    wrong = rng.choice(np.arange(1, len(lines)), len(lines) // 100, replace=False)
    for at in wrong.tolist():
        noise = bytes(rng.integers(128, 256, 30).tolist())
        lines[at] = [noise, b"\xff" + lines[at], lines[at][: len(lines[at]) // 2], lines[at] * 2][at % 4]
    file.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(FormatError) as refusal:
        save(read_source(file), tmp_path / "folder")
    assert f"(and {len(wrong) - 1:,} more lines are wrong)" in refusal.value.problem or suffix == ".jsonl"
    assert not (tmp_path / "folder").exists()
    source = read_source(file, skip=True)
    assert (source.skipped, source.rows) == (len(wrong), len(lines) - (suffix == ".csv"))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_columns_that_a_site_keeps_for_itself_are_left_alone(suffix: str, tmp_path: Path) -> None:
    """A count of clicks beside the clicked ids, none of either, and names that are like none of ours."""
    own = [
        {**GOOD, "clicks": 1, "page_type": "list", "arms": None},
        {**GOOD, "clicked": [], "clicks": 0, "page_type": "grid", "arms": None},
    ]
    source = read_source(write(tmp_path / f"log{suffix}", own))
    assert [row[-3] for row in rows(source, "impressions")] == [[0, 1], [0, 0]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_by_another_name_in_some_rows(suffix: str, tmp_path: Path) -> None:
    """Two exports in one table: each row has its clicks in one of two columns."""
    some = [
        {**GOOD, "click": None},
        {**GOOD, "clicked": None, "click": ["x"]},
        {**GOOD, "clicked": None, "click": None},
    ]
    file = write(tmp_path / f"log{suffix}", some)
    with pytest.raises(FormatError, match=r"clicked is missing, but click is .*must be given as clicked") as refusal:
        read_source(file)
    assert refusal.value.line == 2 + (suffix == ".csv")
    assert read_source(file, skip=True).skipped == 1


@pytest.mark.parametrize("kind", ["q,x", "q,x,1,0,9", "q,\xff,1,0", "q,x,0,0"])
@pytest.mark.parametrize(("mark", "end", "zipped"), [(b"", b"\n", False), (b"\xef\xbb\xbf", b"\r\n", True)])
def test_the_line_is_right_among_empty_and_broken_ones(
    kind: str, mark: bytes, end: bytes, zipped: bool, tmp_path: Path
) -> None:
    """A byte order mark, empty lines, quoted texts of two lines, gzip: the line is the one that an editor shows."""
    rng, lines, wrong = np.random.default_rng(8), [b"query,document,position,clicked"], 0
    for at in range(5000):
        lines += [b""] * int(rng.integers(3))
        if at == 4321:
            wrong = len(lines) + 1
        lines += [kind.encode("latin-1")] if at == 4321 else [b'"a', b'b",x,1,0'] if at % 7 == 0 else [b"q,x,1,0"]
    file, text = tmp_path / f"log.csv{'.gz' * zipped}", mark + end.join(lines) + end
    file.write_bytes(gzip.compress(text) if zipped else text)
    with pytest.raises(FormatError) as refusal:
        read_source(file)
    assert refusal.value.line == wrong


def test_a_row_with_several_wrong_cells_counts_once(tmp_path: Path) -> None:
    text = "qid,docid,shows_pos1,shows_pos2,clicks_pos1,clicks_pos2\nq,x,1,1,2,2\nq,y,1,1,2,2\nq,z,1,1,0,1\n"
    (tmp_path / "wide.csv").write_text(text)
    with pytest.raises(FormatError, match=r"\(and 1 more lines are wrong\)"):
        read_source(tmp_path / "wide.csv")
    assert read_source(tmp_path / "wide.csv", skip=True).skipped == 2


def test_one_percent_garbage(tmp_path: Path) -> None:
    """The first wrong row is named and the others counted; without them the rest is there."""
    results = flat(searches(2000))
    lines = [
        "search_id,qid,sku,rank,click",
        *(",".join(str(one[c]) for c in ("search_id", "qid", "sku", "rank", "click")) for one in results),
    ]
    wrong = np.random.default_rng(1).choice(len(lines) - 1, len(lines) // 100, replace=False) + 1
    for at in wrong.tolist():
        lines[at] = ["a,b,c,d,e", lines[at].replace(",q", ",q\x00", 1) + "7", "1,q1,x,-3,0"][at % 3]
    file = tmp_path / "log.csv"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError) as refusal:
        read_source(file)
    assert refusal.value.line == wrong.min() + 1
    assert f"(and {len(wrong) - 1:,} more lines are wrong)" in refusal.value.problem
    source = read_source(file, skip=True)
    assert source.skipped == len(wrong)
    (kept,) = source.connection.execute(
        "SELECT sum(len(list_filter(shown, lambda d: d <> ''))) FROM impressions"
    ).fetchall()[0]
    assert kept == len(results) - len(wrong)


SPOILT: dict[str, tuple[Any, int | None, str]] = {
    "wrong columns": (["clicked"], None, "no column 'clicked', which format impressions needs"),
    "negative position": ({"rank": -3}, 1234, "rank is -3, must count from 1"),
    "no position": ({"rank": None}, 1234, "rank must be a whole number from 1"),
    "garbage": ({"click": "?!"}, 1234, "click must be 1 or 0"),
    "clicks on what was not shown": ({"clicked": ["nowhere"]}, 77, "clicked nowhere is not among the 3 results shown"),
}  # fmt: skip


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("case", SPOILT)
def test_every_kind_of_file_names_the_row(case: str, suffix: str, tmp_path: Path) -> None:
    """One row is spoilt, or a column is missing from all; the header of CSV is a line too."""
    spoilt, row, message = SPOILT[case]
    pages = isinstance(spoilt, list) or "clicked" in spoilt
    records = searches() if pages else flat(searches(500))
    if isinstance(spoilt, list):
        records = [{name: value for name, value in one.items() if name not in spoilt} for one in records]
    else:
        assert row is not None
        if "click" in spoilt:  # a column of Parquet has one type
            records = [{**one, "click": str(one["click"])} for one in records]
        records[row - 1] |= spoilt
    file = write(tmp_path / f"log{suffix}", records)
    with pytest.raises(FormatError) as refusal:
        save(read_source(file), tmp_path / "folder")
    assert message in refusal.value.problem
    assert refusal.value.path == file
    assert refusal.value.line == (None if row is None else row + (suffix == ".csv"))
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_that_breaks_off_is_refused(suffix: str, tmp_path: Path) -> None:
    file = write(tmp_path / f"log{suffix}", searches())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FormatError) as refusal:
        save(read_source(file), tmp_path / "folder")
    assert (refusal.value.path, refusal.value.line) == (file, {".csv": 401, ".jsonl": 400, ".parquet": None}[suffix])
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_lines_that_are_no_rows_are_counted_with_the_wrong_ones(suffix: str, tmp_path: Path) -> None:
    records = searches(100)
    records[7] |= {"clicked": ["nowhere"]}
    file = write(tmp_path / f"log{suffix}", records)
    with file.open("a", newline="\r\n" if suffix == ".csv" else "\n") as more:
        more.write('{"query": "q0"\n' * 3)
    with pytest.raises(FormatError, match=r"\(and 2 more lines are wrong\)") as refusal:
        read_source(file)
    assert refusal.value.line == 101 + (suffix == ".csv")
    source = read_source(file, skip=True)
    assert (source.rows, source.skipped, source.notes) == (103, 4, ("4 wrong rows were left out",))
    assert len(rows(source, "impressions")) == 99


def test_a_folder_of_parquet_is_one_log_whose_files_are_named(tmp_path: Path) -> None:
    results = flat(searches(60))
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder / "1.parquet", results[:90])  # in the midst of nothing: pages have 3 results
    write(folder / "2.parquet", results[90:])
    whole = read_source(write(tmp_path / "whole.parquet", results))
    assert rows(read_source(folder), "impressions") == rows(whole, "impressions")
    write(folder / "2.parquet", [*results[90:100], {**results[100], "rank": 0}, *results[101:]])
    with pytest.raises(FormatError) as refusal:
        read_source(folder)
    assert (refusal.value.path, refusal.value.line) == (folder / "2.parquet", 11)
    assert read_source(folder, skip=True).skipped == 1
    others = [{name: value for name, value in one.items() if name != "user"} | {"new": 1} for one in results[90:]]
    write(folder / "2.parquet", others)  # columns that come and go
    told = [row[5:] for row in rows(read_source(folder), "impressions")]
    assert told == [row[5:] for row in rows(whole, "impressions")]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FormatError, match=r"there is no \.parquet file in it"):
        read_source(empty)


def test_the_row_is_right_in_a_file_of_many_blocks(tmp_path: Path) -> None:
    lines = ["query,document,position,clicked"] + ["q,x,1,0"] * 300_000
    lines[234_567] = "q,x,0,0"
    (tmp_path / "log.csv").write_text("\n".join(lines))
    with pytest.raises(FormatError) as refusal:
        read_source(tmp_path / "log.csv")
    assert refusal.value.line == 234_568


def test_columns_of_other_names(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("term,thing,place,hit\nq,x,1,0\n")
    columns = {"query": "term", "document": "thing", "position": "place", "clicked": "hit"}
    assert read_source(tmp_path / "log.csv", columns=columns).rows == 1
    with pytest.raises(FormatError, match="there is no column 'nothing'; columns: term, thing, place, hit"):
        read_source(tmp_path / "log.csv", columns={"query": "nothing"})


def test_a_folder_that_was_imported_is_read_as_it_is(tmp_path: Path) -> None:
    save(read_source(write(tmp_path / "log.jsonl", searches(20))), tmp_path / "log")
    for options in ({"k": 2}, {"columns": {"unit": "who"}}, {"method": TeamDraft()}, {"actions": ("buy",)}):
        for read in (read_source, read_log):
            with pytest.raises(ValueError, match=r"is read as it is, with 3 ranks: .* must be given where"):
                read(tmp_path / "log", **options)
    assert len(read_log(tmp_path / "log", k=3)) == 20


def test_a_log_is_not_imported_over_another(tmp_path: Path) -> None:
    file = write(tmp_path / "log.jsonl", searches(20))
    save(read_source(file), tmp_path / "log")
    with pytest.raises(ValueError, match="holds a log already"):
        save(read_source(file), tmp_path / "log")
    assert len(read_log(tmp_path / "log")) == 20
