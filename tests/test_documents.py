"""Every code block of the documents runs, block after block of a page; links, methods and file names in them are right."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

import postgres_server
from documents import ROOT, Block, Reader, blocks_of
from ranktrial.live import Trial
from ranktrial.methods import Method, parse_method
from ranktrial.study.plan import read_plan

EVERY_PAGE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *(page for page in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in page.parts),
    *sorted(ROOT.glob("clients/**/README.md")),
]
OF_PAGE = pytest.mark.parametrize("page", EVERY_PAGE, ids=[page.relative_to(ROOT).as_posix() for page in EVERY_PAGE])
BLOCKS = {page: blocks_of(page) for page in EVERY_PAGE}
WITH_BLOCKS = [page for page, blocks in BLOCKS.items() if any(block.reason is None for block in blocks)]
NOT_RUN = [block for blocks in BLOCKS.values() for block in blocks if block.reason is not None]
# Data sets that pages read and readers have to fetch themselves, as they are named there.
DATA_SETS = [
    *(f"MSLR-WEB30K/Fold1/{part}.txt" for part in ("train", "vali", "test")),
    *(f"ltrc_yahoo/set1.{part}.txt" for part in ("train", "valid", "test")),
]


# What a page takes for granted in the folder in which its blocks run.


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


def wrong_rows(folder: Path) -> None:
    rows = ["query,document,position,clicked", "shoes,sku-1,1,0", "shoes,sku-2,0,1", "hats,sku-3,first,1"]
    (folder / "bad.csv").write_text("\n".join(rows) + "\n")


def stopped_trial(folder: Path) -> None:
    """A store with a stopped trial in which user-17 has searched, and a folder for copies of it."""
    (folder / "copies").mkdir()
    with Trial.create(folder / "shoes.db", "shoes", k=2, background=False) as trial:
        trial.rank("red shoes", a=["x", "y"], b=["y", "z"], unit="user-17", wait=True)
        trial.stop()


REPLACED = {
    "https://trials.example.com": "http://127.0.0.1:8000",
    "patience = 300": "patience = 60_000",  # on a machine that may be busy
    "PATIENCE = Duration.ofMillis(300)": "PATIENCE = Duration.ofMillis(60_000)",
}
MARKER = "<!-- generated: "  # what the site makes from the code, whose headings it checks itself
DATABASE = "postgresql://ranktrial@db.example.com/trials"
TAKEN_FOR_GRANTED = {
    "docs/data.md": data_sets,
    "docs/logs.md": wrong_rows,
    "docs/operations.md": stopped_trial,
    "docs/planning.md": two_rankers,
}


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=[page.relative_to(ROOT).as_posix() for page in WITH_BLOCKS])
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "registry", dict(Method.registry))  # a page may define a method
    TAKEN_FOR_GRANTED.get(page.relative_to(ROOT).as_posix(), lambda _: None)(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text, replaced, more = page.read_text(encoding="utf-8"), dict(REPLACED), {}
    if DATABASE in text:
        if postgres_server.binaries() is None:
            pytest.skip("no PostgreSQL server is installed")
        folder = str(postgres_server.shared_server().folder)
        replaced[DATABASE], more = (
            f"postgresql://ranktrial@/trials?host={folder}",
            {"PGHOST": folder, "PGUSER": "ranktrial"},
        )
    for program in ("node", "java"):
        if f"\n{program} " in text and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    with Reader(tmp_path, text, replaced, more) as reader:
        for block in BLOCKS[page]:
            if block.reason is None:
                reader.run(block)


@pytest.mark.parametrize("block", NOT_RUN, ids=[block.where for block in NOT_RUN])
def test_a_block_that_does_not_run_says_why(block: Block) -> None:
    """Skipped, so that the summary of a run lists them with their reasons."""
    assert block.reason
    pytest.skip(f"{block.where}: {block.reason}")


WRONG = {
    "sh": "false\ntrue\n",
    "console": "$ echo one\ntwo\n",
    "python": "assert False\n",
    "text": "never printed\n",
    "json": "{'a': 1}\n",
    "": "what language is this\n",
}


@pytest.mark.parametrize("language", WRONG)
def test_a_wrong_block_is_noticed(language: str, tmp_path: Path) -> None:
    with Reader(tmp_path, "", {}, {}) as reader:
        reader.run(Block("page.md", 1, "console", "$ echo one 2 three; echo four\none ... three\n...\n", None))
        with pytest.raises((AssertionError, ValueError)):
            reader.run(Block("page.md", 1, language, WRONG[language], None))


def test_what_is_saved_is_run() -> None:
    for page, blocks in BLOCKS.items():
        for number, block in enumerate(blocks):
            if block.file is not None:
                later = "".join(one.code for one in blocks[number + 1 :] if one.language in ("sh", "bash", "console"))
                assert block.file in later, f"{block.where}: no later block of {page} runs {block.file}"


@OF_PAGE
def test_methods_are_written_as_they_are(page: Path) -> None:
    """``LogOpt(floor=0.9)`` in a sentence, a table or a plan is a method with that option."""
    text = page.read_text(encoding="utf-8")
    names = "|".join(Method.registry)
    for written in re.findall(rf"`((?:{names})\((?:[^()`]|\([^()`]*\))*\))`", text):
        parse_method(written)
    for plan in re.findall(r"```toml\n(.*?)```", text, re.S):
        for written in tomllib.loads(plan).get("methods", ()):
            parse_method(written)


def test_every_guardrail_has_a_remedy(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=2, background=False) as trial:
        checks = [guardrail.name for guardrail in trial.report().guardrails]
    assert len(checks) > 15
    guide = (ROOT / "docs/how-to/guardrail-fails.md").read_text(encoding="utf-8")
    told = {name.strip() for row in re.findall(r"^\| ([a-z][^|]*) \|", guide, re.M) for name in row.split(",")}
    assert [name for name in checks if name not in told] == []


def test_the_plans_of_the_study_can_be_run() -> None:
    assert len(read_plan(str(ROOT / "docs/study.toml")).methods) == 17
    _, right, wrong = read_plan(str(ROOT / "docs/dip.toml")).methods
    assert wrong == f"{right.removesuffix(')')}, authors_rows=True)"


@OF_PAGE
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        target = page.parent / link if link else page
        assert target.exists(), link
        if anchor and MARKER not in target.read_text(encoding="utf-8"):
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    for file in re.findall(r"`((?:\w+/)+\w+\.(?:py|js|md)|(?:\w+/){2,})`", text):
        assert (ROOT / file).exists() or (ROOT / "src/ranktrial" / file).exists(), file


def test_the_tree_is_the_tree() -> None:
    """CONTRIBUTING.md has a line for everything at the top of the package."""
    block = re.search(
        r"```text\nsrc/ranktrial/\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.S
    )
    assert block is not None
    told = set(re.findall(r"^  ([\w.]+)", block[1], re.M))
    there = {entry.name for entry in (ROOT / "src/ranktrial").iterdir()} - {"__pycache__", "py.typed"}
    assert told == there
