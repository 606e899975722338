"""Speed of reading learning-to-rank files, the first time and from the cache."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from ranktrial.paper.data import read_letor

TEXT_MB = 100


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="ranktrial-bench-") as folder:
        before = os.environ.get("RANKTRIAL_CACHE")
        os.environ["RANKTRIAL_CACHE"] = str(Path(folder) / "cache")
        try:
            return _measure(Path(folder))
        finally:
            if before is None:
                del os.environ["RANKTRIAL_CACHE"]
            else:
                os.environ["RANKTRIAL_CACHE"] = before


def _measure(folder: Path) -> list[dict[str, object]]:
    small = folder / "small.txt"
    small.write_bytes(_text(1))
    read_letor(small)  # compiles
    plain = folder / "plain.txt"
    plain.write_bytes(_text(TEXT_MB))
    zipped = folder / "zipped.txt.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=1))
    megabytes = plain.stat().st_size / 1e6
    return [
        _row("read LETOR text", megabytes / _seconds(plain), 30.0, "MB/s"),
        _row("read LETOR text, gzip", megabytes / _seconds(zipped), 30.0, "MB/s"),
        _row("read LETOR text from the cache", _seconds(plain), 0.1, "s"),
    ]


def _row(name: str, measured: float, target: float, unit: str) -> dict[str, object]:
    return {"name": name, "measured": measured, "target": target, "unit": unit}


def _seconds(file: Path) -> float:
    start = time.perf_counter()
    read_letor(file)
    return time.perf_counter() - start


def _text(megabytes: int) -> bytes:
    """Lines like MSLR's: 136 features, two in five zero, the others integers or six decimals."""
    random = np.random.default_rng(1)
    lines = []
    for document in range(400):
        values = np.where(random.random(136) < 0.4, 0.0, random.lognormal(0, 3, 136))
        texts = [f"{value:.6f}" if value % 1 and i % 2 else f"{value:.0f}" for i, value in enumerate(values)]
        features = " ".join(f"{i + 1}:{text}" for i, text in enumerate(texts))
        lines.append(f"{document % 5} qid:%d {features}\n")
    texts_of_query = []
    size = number = 0
    while size < megabytes * 1_000_000:
        number += 1
        query = "".join(lines[(number % 4) * 100 : (number % 4 + 1) * 100])
        texts_of_query.append(query.replace("%d", str(number)).encode())
        size += len(texts_of_query[-1])
    return b"".join(texts_of_query)
