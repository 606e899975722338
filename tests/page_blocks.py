"""Pages whose code blocks run, in groups: each is a file of ``pages/``, so that workers share them.

And what a page takes for granted in the folder in which its blocks run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

import postgres_server
from documents import ROOT, Reader, blocks_of
from ranktrial.analysis.guardrails import status
from ranktrial.formats import export
from ranktrial.methods import Method
from ranktrial.trial import Trial
from simulated_trial import World

EVERY_PAGE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *(page for page in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in page.parts),
    *sorted(ROOT.glob("clients/**/README.md")),
]
BLOCKS = {page: blocks_of(page) for page in EVERY_PAGE}
# The first pattern that fits says where a page belongs.
GROUPS = {
    "tutorial": ("docs/tutorial.md",),
    "planning": ("docs/how-to/plan.md",),
    "service": (
        *(f"docs/how-to/{name}.md" for name in ("backup", "erase", "export", "install", "keys", "postgres")),
        *(f"docs/reference/{name}.md" for name in ("clients", "http")),
    ),
    "guides": ("docs/how-to/*",),
    "study": ("docs/research/*",),
    "other_pages": ("*",),
}
# Data sets that pages read and readers have to fetch themselves, as they are named there.
DATA_SETS = [
    *(f"MSLR-WEB30K/Fold1/{part}.txt" for part in ("train", "vali", "test")),
    *(f"ltrc_yahoo/set1.{part}.txt" for part in ("train", "valid", "test")),
]


def data_sets(folder: Path) -> None:
    for file in DATA_SETS:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("2 qid:10 1:0.5 3:12.25\n0 qid:10 1:0.1 3:3\n1 qid:11 1:0.7 3:2\n0 qid:11 3:9\n")


def two_rankers(folder: Path) -> None:
    """Run files, judgements, labelled documents and scores of them: 12 queries of 12 documents."""
    documents = range(1, 13)
    for name, shift in (("a", 0), ("b", 1)):
        lists = [(query, (document * 5 + shift * query) % 13) for query in documents for document in documents]
        order = [
            f"q{query} Q0 d{document} {rank % 12 + 1} {-rank} {name}" for rank, (query, document) in enumerate(lists)
        ]
        (folder / f"{name}.run").write_text("\n".join(order) + "\n")
        (folder / f"{name}.scores").write_text("".join(f"{document}\n" for _, document in lists))
    pairs = [(query, document) for query in documents for document in documents]
    (folder / "judged.qrels").write_text("".join(f"q{q} 0 d{d} {d % 3}\n" for q, d in pairs))
    (folder / "train.txt").write_text("".join(f"{d % 3} qid:{q} 1:{d} 2:{q}\n" for q, d in pairs))


def two_rankers_and_a_log(folder: Path) -> None:
    """Run files of two rankers, and the export of a trial of long ago in which every search ended with an order."""
    two_rankers(folder)
    with Trial.create(folder / "shoes.db", "shoes", k=2, background=False, clock=lambda: 1.7e9) as trial:
        for visitor in range(20):
            shown = trial.rank("red shoes", a=["x", "y"], b=["y", "z"], unit=f"user-{visitor}", wait=True)
            trial.click(shown.id, shown.ranking[0])
            trial.event(shown.id, shown.ranking[0], "order", 20 + visitor, event_id=str(visitor))
        trial.store.flush()
        export(trial.store, trial.name, folder / "shoes-log")


def wrong_rows(folder: Path) -> None:
    rows = ["query,document,position,clicked", "shoes,sku-1,1,0", "shoes,sku-2,0,1", "hats,sku-3,first,1"]
    (folder / "bad.csv").write_text("\n".join(rows) + "\n")


def stopped_trial(folder: Path) -> None:
    """A store with a stopped trial in which user-17 has searched, and a folder for copies of it."""
    (folder / "copies").mkdir()
    with Trial.create(folder / "shoes.db", "shoes", k=2, background=False) as trial:
        trial.rank("red shoes", a=["x", "y"], b=["y", "z"], unit="user-17", wait=True)
        trial.stop()


def finished_trials(folder: Path) -> None:
    """Two stores with three trials that are over, of 300 searches each."""
    for seed, (store, name) in enumerate((("shoes.db", "boots"), ("shoes.db", "sneakers"), ("hats.db", "hats"))):
        with Trial.create(folder / store, name, k=5, seed=seed, background=False) as trial:
            World.of_best_and_random(seed=seed).run(trial, 300, seed=seed)
            trial.stop()


REPLACED = {
    "https://trials.example.com": "http://127.0.0.1:8000",
    "patience = 300": "patience = 60_000",  # on a machine that may be busy
    "PATIENCE = Duration.ofMillis(300)": "PATIENCE = Duration.ofMillis(60_000)",
}
DATABASE = "postgresql://ranktrial@db.example.com/trials"
TAKEN_FOR_GRANTED = {
    "docs/how-to/backup.md": stopped_trial,
    "docs/how-to/calibrate.md": finished_trials,
    "docs/how-to/erase.md": stopped_trial,
    "docs/how-to/export.md": stopped_trial,
    "docs/how-to/import.md": wrong_rows,
    "docs/how-to/plan.md": two_rankers_and_a_log,
    "docs/research/data.md": data_sets,
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def group_of(page: Path) -> str:
    """The group that runs a page's blocks."""
    return next(group for group, patterns in GROUPS.items() if any(fnmatch(name_of(page), one) for one in patterns))


def blocks_run(group: str) -> Callable[..., None]:
    """A test that goes through the pages of a group, block after block."""
    pages = [page for page in EVERY_PAGE if group_of(page) == group and any(b.reason is None for b in BLOCKS[page])]

    @pytest.mark.slow
    @pytest.mark.parametrize("page", pages, ids=map(name_of, pages))
    def test(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(Method, "registry", dict(Method.registry))  # a page may define a method
        monkeypatch.setattr(status, "WORDS", dict(status.WORDS))  # or a guardrail
        _go_through(page, tmp_path)

    return test


def _go_through(page: Path, folder: Path) -> None:
    TAKEN_FOR_GRANTED.get(name_of(page), lambda _: None)(folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    text, replaced, more = page.read_text(encoding="utf-8"), dict(REPLACED), {}
    if DATABASE in text:
        if postgres_server.binaries() is None:
            pytest.skip("no PostgreSQL server is installed")
        server = str(postgres_server.shared_server().folder)
        replaced[DATABASE], more = (
            f"postgresql://ranktrial@/trials?host={server}",
            {"PGHOST": server, "PGUSER": "ranktrial"},
        )
    for program in ("node", "java"):
        if f"\n{program} " in text and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    with Reader(folder, text, replaced, more) as reader:
        for block in BLOCKS[page]:
            if block.reason is None:
                reader.run(block)
