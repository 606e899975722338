"""The reader against a plain-Python twin, on every error it promises, and on bytes that are not LETOR at all."""

from __future__ import annotations

import gzip
import math
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ranktrial.paper.data import Dataset, LetorError, _kernels, letor, read_letor, read_splits
from ranktrial.paper.data.dataset import load_dataset

Document = tuple[int, int, dict[int, float]]

SMALL = """\
2 qid:7 1:0.5 3:4
0 qid:7 1:1.5 2:1 3:4 # doc 17
1 qid:9 2:-2
0 qid:9
"""


def write(folder: Path, content: str | bytes, name: str = "train.txt") -> Path:
    data = content.encode() if isinstance(content, str) else content
    file = folder / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


def read_in_blocks(file: Path, block_bytes: int, *, normalise: bool = True, drop_constant: bool = True) -> Dataset:
    """The reader with blocks of a few bytes, so that every place in a file is once a border."""
    with tempfile.TemporaryDirectory() as folder:
        letor._build(file, Path(folder), normalise, drop_constant, None, block_bytes, None)
        return load_dataset(Path(folder), "test", np.load)


def twin_parse(text: str) -> list[Document]:
    documents = []
    for line in text.split("\n"):
        tokens = line.partition("#")[0].split()
        if tokens:
            features = {int(f): float(v) for f, v in (token.split(":") for token in tokens[2:])}
            documents.append((int(tokens[0]), int(tokens[1].removeprefix("qid:")), features))
    return documents


def twin(text: str, normalise: bool, drop_constant: bool) -> tuple[list[int], list[int], list[int], Any]:
    """Labels, query lengths, feature ids and the dense table, in plain Python and NumPy."""
    documents = twin_parse(text)
    ids = sorted({f for _, _, features in documents for f in features})
    table = np.array([[features.get(f, 0.0) for f in ids] for _, _, features in documents]).reshape(len(documents), -1)
    queries = [query for _, query, _ in documents]
    order = list(dict.fromkeys(queries))
    varies = np.zeros(len(ids), bool)
    for query in order:
        rows = np.array([q == query for q in queries])
        low, high = table[rows].min(0), table[rows].max(0)
        varies |= high > low
        if normalise:
            table[rows] = np.where(high > low, (table[rows] - low) / np.where(high > low, high - low, 1), 0)
    table = np.clip(table, -np.finfo(np.float32).max, np.finfo(np.float32).max)
    keep = varies if drop_constant else np.ones(len(ids), bool)
    lengths = [queries.count(query) for query in order]
    return [d[0] for d in documents], lengths, [f for f, k in zip(ids, keep) if k], table[:, keep].astype(np.float32)


numbers = st.one_of(
    st.floats(-1e30, 1e30, allow_nan=False).map(repr),
    st.decimals(-1000, 1000, places=6).map(str),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(["0", "-0", "+1.5", ".5", "5.", "1e3", "1E-30", "1.48453e+12", "0.75000", "9007199254740993"]),
    st.text("0123456789", min_size=1, max_size=40),
    st.text("0123456789", min_size=1, max_size=30).map(lambda digits: f"0.{digits}e-12"),
)


@st.composite
def letor_text(draw: st.DrawFn) -> str:
    ends = draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for query in draw(st.lists(st.integers(0, 10**17), min_size=1, max_size=4, unique=True)):
        for _ in range(draw(st.integers(1, 4))):
            features = draw(st.dictionaries(st.integers(1, 12), numbers, max_size=6))
            gap = draw(st.sampled_from([" ", "\t", "  "]))
            pairs = "".join(f"{gap}{feature}:{value}" for feature, value in features.items())
            comment = draw(st.sampled_from(["", " ", " # doc = 3", "#x", "\t#"]))
            lines.append(f"{draw(st.integers(0, 4))}{gap}qid:{query}{pairs}{comment}")
            lines += draw(st.lists(st.sampled_from(["", "  ", "# a comment"]), max_size=1))
    return ends.join(lines) + draw(st.sampled_from(["", ends]))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(text=letor_text(), block_bytes=st.sampled_from([1, 7, 64, 1 << 20]), normalise=st.booleans(), drop=st.booleans())
def test_reader_equals_its_twin(text: str, block_bytes: int, normalise: bool, drop: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset = read_in_blocks(write(Path(folder), text), block_bytes, normalise=normalise, drop_constant=drop)
    labels, lengths, feature_ids, table = twin(text, normalise, drop)
    assert dataset.labels.tolist() == labels
    assert np.diff(dataset.offsets).tolist() == lengths
    assert dataset.feature_ids.tolist() == feature_ids
    np.testing.assert_array_equal(dataset.features, table)


@settings(max_examples=300, deadline=None)
@given(text=numbers)
def test_numbers_are_read_exactly(text: str) -> None:
    values = np.zeros(1)
    arrays = (np.zeros(9, np.int16), *(np.zeros(9, np.int64) for _ in range(4)))
    slow = np.zeros((9, 3), np.int64)
    line = f"0 qid:1 1:{text}\n".encode()
    parsed = _kernels.parse_letor(
        np.frombuffer(line, np.uint8), len(line), 1, np.zeros(2, np.int64), *arrays, np.zeros(1, np.int32), values, slow
    )
    assert parsed[1] == 1
    if parsed[2] == 0:
        assert values[0] == float(text)
    else:
        assert line[slow[0, 1] : slow[0, 2]].decode() == text


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.text("0123456789 qid:.-+e#\n\r\tnaf", max_size=120).map(str.encode),
        st.tuples(letor_text().map(str.encode), st.integers(0, 400), st.binary(max_size=3)).map(
            lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]
        ),
    ),
    block_bytes=st.sampled_from([3, 1 << 16]),
)
def test_any_bytes_load_or_are_refused(content: bytes, block_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            dataset = read_in_blocks(write(Path(folder), content), block_bytes)
        except LetorError as error:
            refused_at, dataset = error.line, None
    if dataset is None:
        assert refused_at is not None
    else:
        assert dataset.n_documents >= 1
        assert np.all((dataset.features >= 0) & (dataset.features <= 1))


def test_small_file_by_hand(tmp_path: Path) -> None:
    dataset = read_letor(write(tmp_path, SMALL))
    assert dataset.query_ids.tolist() == [7, 9]
    assert dataset.offsets.tolist() == [0, 2, 4]
    assert dataset.labels.tolist() == [2, 0, 1, 0]
    # Feature 3 is 4 for both documents of query 7 and missing from query 9: constant, so it is left out.
    assert dataset.feature_ids.tolist() == [1, 2]
    assert dataset.features.tolist() == [[0, 0], [1, 1], [0, 0], [0, 1]]
    assert dataset.features.dtype == np.float32
    raw = read_letor(tmp_path / "train.txt", normalise=False, drop_constant=False)
    assert raw.feature_ids.tolist() == [1, 2, 3]
    assert raw.features.tolist() == [[0.5, 0, 4], [1.5, 1, 4], [0, -2, 0], [0, 0, 0]]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n# the end"])
def test_last_query_is_kept_whatever_the_file_ends_with(tmp_path: Path, end: str) -> None:
    dataset = read_letor(write(tmp_path, "1 qid:1 1:1\n0 qid:2 1:1\n3 qid:2 1:2" + end))
    assert dataset.query_ids.tolist() == [1, 2]
    assert dataset.labels.tolist() == [1, 0, 3]


def test_istella_largest_value_counts_as_the_largest_number(tmp_path: Path) -> None:
    text = (
        "0 qid:1 1:1.79769313486232E308 2:-1.79769313486232E308\n1 qid:1 1:3 2:1.79769313486232E308\n2 qid:1 1:0 2:0\n"
    )
    scaled = read_letor(write(tmp_path, text))
    assert scaled.features.tolist() == [[1, 0], [0, 1], [0, 0.5]]
    raw = read_letor(tmp_path / "train.txt", normalise=False)
    assert np.all(np.isfinite(raw.features))


def test_tiny_ranges_are_scaled_too(tmp_path: Path) -> None:
    dataset = read_letor(write(tmp_path, "0 qid:1 1:5e-324\n0 qid:1 1:0\n"))
    assert dataset.features.tolist() == [[1], [0]]


def test_feature_ids_choose_the_columns(tmp_path: Path) -> None:
    dataset = read_letor(write(tmp_path, SMALL), feature_ids=[3, 8, 1], normalise=False)
    assert dataset.feature_ids.tolist() == [3, 8, 1]
    assert dataset.features.tolist() == [[4, 0, 0.5], [4, 0, 1.5], [0, 0, 0], [0, 0, 0]]
    for wrong in ([0], [1, 1], [-3], [2_000_000]):
        with pytest.raises(ValueError, match="feature_ids must be distinct"):
            read_letor(tmp_path / "train.txt", feature_ids=wrong)


def test_all_features_constant(tmp_path: Path) -> None:
    for use_cache in (True, True, False):
        dataset = read_letor(write(tmp_path, "0 qid:1 1:5\n1 qid:2 1:3\n"), cache=use_cache)
        assert dataset.features.shape == (2, 0)


GOOD = "1 qid:1 1:2 2:3\n"

BAD_LINES = {
    "missing qid": ("1 1:2 2:3", r"no qid after the label but '1:2'"),
    "label alone": ("1", r"no qid after the label"),
    "letters in the qid": ("1 qid:x7 1:2", r"'qid:x7' must be qid: and an integer"),
    "negative qid": ("1 qid:-7 1:2", r"'qid:-7' must be qid: and an integer"),
    "qid too long": ("1 qid:1234567890123456789 1:2", r"at most 18 digits"),
    "letters in the label": ("high qid:1 1:2", r"label 'high' must be an integer, 0 or more"),
    "negative label": ("-1 qid:1 1:2", r"label '-1' must be an integer, 0 or more"),
    "fractional label": ("1.5 qid:1 1:2", r"label '1.5' must be an integer"),
    "huge label": ("40000 qid:1 1:2", r"label '40000' is too large, must be at most 32767"),
    "letters in a feature": ("1 qid:1 bm25:2", r"'bm25:2' must be feature:value"),
    "feature without value": ("1 qid:1 5", r"'5' must be feature:value"),
    "negative feature": ("1 qid:1 -3:2", r"'-3:2' must be feature:value with the feature a number from 1"),
    "feature 0": ("1 qid:1 0:2", r"feature of '0:2' must be between 1 and"),
    "huge feature": ("1 qid:1 1000001:2", r"between 1 and 1,000,000"),
    "duplicate feature": ("1 qid:1 3:1 2:1 3:2", r"'3:2' repeats a feature of this line"),
    "letters in a value": ("1 qid:1 1:2 2:abc", r"value in '2:abc' is not a number"),
    "empty value": ("1 qid:1 1: 2:1", r"value in '1:' is not a number"),
    "broken exponent": ("1 qid:1 1:2e", r"value in '1:2e' is not a number"),
    "two points": ("1 qid:1 1:2.3.4", r"value in '1:2.3.4' is not a number"),
    "decimal comma": ("1 qid:1 1:2,3", r"value in '1:2,3' is not a number"),
    "NaN": ("1 qid:1 1:NaN", r"'1:NaN' is not a finite number"),
    "infinity": ("1 qid:1 1:-inf", r"'1:-inf' is not a finite number"),
    "binary": ("\x00\x01\x02", r"label '\\x00\\x01\\x02' must be an integer"),
}


@pytest.mark.parametrize("case", BAD_LINES)
@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_bad_lines_are_named(tmp_path: Path, case: str, name: str) -> None:
    line, message = BAD_LINES[case]
    file = write(tmp_path, f"# head\n{GOOD}\n{GOOD}{line}\n{GOOD}", name)
    with pytest.raises(LetorError, match=message) as caught:
        read_letor(file)
    assert caught.value.line == 5
    assert str(caught.value).startswith(f"{file}:5: ")


@pytest.mark.parametrize("block_bytes", [5, 40, 1 << 20])
def test_line_numbers_do_not_depend_on_blocks(tmp_path: Path, block_bytes: int) -> None:
    file = write(tmp_path, "".join(f"1 qid:{q} 1:2\n\n# x\n" for q in range(20)) + "1 qid:99 1:x\n")
    with pytest.raises(LetorError) as caught:
        read_in_blocks(file, block_bytes)
    assert caught.value.line == 61


def test_a_query_much_longer_than_a_block_takes_no_longer(tmp_path: Path) -> None:
    file = write(tmp_path, f"1 qid:1 {' '.join(f'{i}:0.5' for i in range(1, 200))}\n" * 8_000)
    read_in_blocks(file, 1 << 20)  # to compile

    def seconds(block_bytes: int) -> float:
        start = time.process_time()
        read_in_blocks(file, block_bytes)
        return time.process_time() - start

    assert seconds(512) < 3 * seconds(1 << 20) + 0.2


@pytest.mark.parametrize("block_bytes", [5, 1 << 20])
def test_query_that_comes_back(tmp_path: Path, block_bytes: int) -> None:
    file = write(tmp_path, "1 qid:4 1:2\n1 qid:5 1:2\n1 qid:5 1:3\n\n1 qid:4 1:2\n")
    with pytest.raises(LetorError, match=r"query 4 appears again \(it began on line 1\)") as caught:
        read_in_blocks(file, block_bytes)
    assert caught.value.line == 5


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment"])
@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_empty_file(tmp_path: Path, content: str, name: str) -> None:
    with pytest.raises(LetorError, match=r"train.txt.*:1: no document in the file; expected lines like"):
        read_letor(write(tmp_path, content, name))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(LetorError, match="no such file"):
        read_letor(tmp_path / "nothing.txt")
    with pytest.raises(LetorError, match="is a directory"):
        read_letor(tmp_path)
    with pytest.raises(LetorError, match="no such folder"):
        read_splits(tmp_path / "nothing")


LONG = "".join(f"{i % 3} qid:{i // 10} 1:{i} 2:{i * i % 97}\n" for i in range(5000)).encode()


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip_a_byte(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


def wrong_checksum(data: bytes) -> bytes:
    return data[:-8] + bytes(4) + data[-4:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [(cut_short, "ends too early"), (flip_a_byte, "corrupt|repeats|must be|not a number"), (wrong_checksum, "corrupt")],
)
def test_damaged_gzip(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    file = tmp_path / "train.txt.gz"
    file.write_bytes(damage(gzip.compress(LONG)))
    with pytest.raises(LetorError, match=message) as caught:
        read_letor(file)
    assert caught.value.line is not None
    assert 1 < caught.value.line <= 5001


def test_truncated_gzip_names_the_line_reached(tmp_path: Path) -> None:
    data = gzip.compress(LONG)
    half = data[: len(data) // 2]
    reached = zlib.decompressobj(31).decompress(half).count(b"\n") + 1
    file = tmp_path / "train.txt.gz"
    file.write_bytes(half)
    with pytest.raises(LetorError) as caught:
        read_letor(file)
    assert caught.value.line == reached


def test_gzip_in_name_only(tmp_path: Path) -> None:
    file = tmp_path / "train.txt.gz"
    file.write_text(SMALL)
    with pytest.raises(LetorError, match=r"named .gz but does not start like a gzip file"):
        read_letor(file)


def test_gzip_members_and_padding(tmp_path: Path) -> None:
    half = SMALL.index("1 qid:9")
    file = tmp_path / "train.txt.gz"
    file.write_bytes(gzip.compress(SMALL[:half].encode()) + gzip.compress(SMALL[half:].encode()) + bytes(100))
    assert read_letor(file).labels.tolist() == [2, 0, 1, 0]


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    for name in ("train.txt", "train.txt.gz"):
        seen: list[tuple[int, int]] = []
        file = write(tmp_path, LONG, name)
        read_letor(file, progress=lambda done, total, seen=seen: seen.append((done, total)))  # type: ignore[misc]
        size = file.stat().st_size
        assert seen[-1] == (size, size)


SPELLINGS = [
    ("train.txt", "vali.txt", "test.txt"),
    ("train.txt.gz", "vali.txt.gz", "test.txt.gz"),
    ("set1.train.txt", "set1.valid.txt", "set1.test.txt"),
    ("trainingset.txt", "validationset.txt", "testset.txt"),
    ("train", "validation", "test"),
]


@pytest.mark.parametrize("names", SPELLINGS)
def test_splits_in_the_spellings_of_the_data_sets(tmp_path: Path, names: tuple[str, str, str]) -> None:
    for query, name in enumerate(names):
        # Feature 5 varies only outside the training file: it must not become a column.
        write(tmp_path, f"0 qid:{query} 1:1 5:{query}\n1 qid:{query} 1:2 5:0\n", name)
    splits = read_splits(tmp_path)
    assert list(splits) == ["train", "vali", "test"]
    assert [split.query_ids.tolist() for split in splits.values()] == [[0], [1], [2]]
    assert all(split.feature_ids.tolist() == [1] for split in splits.values())


def test_splits_that_are_not_clear(tmp_path: Path) -> None:
    write(tmp_path, SMALL, "notes.txt")
    write(tmp_path, SMALL, "test.txt")
    with pytest.raises(LetorError, match="no training file; expected a name like"):
        read_splits(tmp_path)
    write(tmp_path, SMALL, "set1.train.txt")
    write(tmp_path, SMALL + "0 qid:11\n", "set2.train.txt")
    with pytest.raises(LetorError, match=r"several train files \(set1.train.txt, set2.train.txt\)"):
        read_splits(tmp_path)
    assert read_splits(tmp_path, prefix="set2")["train"].n_queries == 3


def test_of_plain_and_gzipped_the_plain_file_is_read(tmp_path: Path) -> None:
    write(tmp_path, SMALL, "train.txt")
    write(tmp_path, SMALL + "0 qid:11\n", "train.txt.gz")
    assert read_splits(tmp_path)["train"].n_queries == 2


def test_a_number_beyond_the_exact_range_is_still_the_nearest(tmp_path: Path) -> None:
    texts = ["123456789012345678901234567890", "0.1000000000000000055511151231257827", "7e-45", "1e23", "8.5e22"]
    lines = "".join(f"0 qid:1 1:{text}\n" for text in texts)
    dataset = read_letor(write(tmp_path, lines), normalise=False)
    assert dataset.features[:, 0].tolist() == [np.float32(float(text)) for text in texts]
    assert not math.isnan(float(dataset.features.sum()))


GROUPED = "2 1:0.5 3:4\n0 1:1.5 2:1 3:4 # doc 17\n\n1 2:-2\n0"


@pytest.mark.parametrize("suffix", ["query", "group"])
@pytest.mark.parametrize("name", ["rank.train", "rank.train.gz"])
def test_queries_of_a_group_file(tmp_path: Path, name: str, suffix: str) -> None:
    """Groups as LightGBM (.query) and XGBoost (.group) keep them: the same documents as with qid."""
    expected = read_letor(write(tmp_path, SMALL), normalise=False)
    write(tmp_path, "2\n2\n", f"rank.train.{suffix}")
    for block_bytes in (3, 1 << 20):
        with tempfile.TemporaryDirectory() as folder:
            file = write(tmp_path, GROUPED, name)
            letor._build(file, Path(folder), False, True, None, block_bytes, None, letor._group_file(file))
            assert np.load(f"{folder}/query_ids.npy").tolist() == [1, 2]
            np.testing.assert_array_equal(np.load(f"{folder}/features.npy"), expected.features)
            np.testing.assert_array_equal(np.load(f"{folder}/labels.npy"), expected.labels)


@pytest.mark.parametrize(
    ("groups", "where", "message"),
    [
        ("2\n1\n", "rank.train", "has more documents than .*rank.train.query names"),
        ("2\n3\n", "rank.train.query", "names more documents than rank.train has, which ends in query 2"),
        ("2\ntwo\n", "rank.train.query:2", "'two' must be the number of documents of a query"),
        ("0\n4\n", "rank.train.query:1", "'0' must be the number of documents of a query, 1 or more"),
        (None, "rank.train:1", "no qid after the label but '1:0.5'; .* one of its name and .query or .group"),
    ],
)
def test_groups_that_do_not_fit_are_named(tmp_path: Path, groups: str | None, where: str, message: str) -> None:
    file = write(tmp_path, GROUPED, "rank.train")
    if groups is not None:
        write(tmp_path, groups, "rank.train.query")
    with pytest.raises(LetorError, match=message) as refusal:
        read_letor(file)
    assert str(refusal.value).startswith(f"{tmp_path}/{where}:")


def test_groups_that_change_are_read_again(tmp_path: Path) -> None:
    file = write(tmp_path, GROUPED, "rank.train")
    for sizes in ("2\n2\n", "1\n3\n"):
        write(tmp_path, sizes, "rank.train.group")
        assert np.diff(read_letor(file).offsets).tolist() == [int(size) for size in sizes.split()]


@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 20])
def test_null_is_left_out(tmp_path: Path, block_bytes: int) -> None:
    """LETOR's rank aggregation sets: a document that a ranker did not return."""
    file = write(tmp_path, "2 qid:7 1:NULL 2:3 3:NULL\n0 qid:7 1:5 2:NULL #docid = 3 4:NULLs\n1 qid:7 2:1 9:NULL")
    dataset = read_in_blocks(file, block_bytes, normalise=False)
    assert dataset.feature_ids.tolist() == [1, 2]
    np.testing.assert_array_equal(dataset.features, [[0, 3], [5, 0], [0, 1]])
