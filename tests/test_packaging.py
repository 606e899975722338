"""Metadata of the package: one version, one list of Pythons, one place, wherever they are written."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import yaml

import ranktrial

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def read(file: str) -> Any:
    """A YAML file; ``on`` is a word in it, not True."""
    return yaml.load((ROOT / file).read_text(), yaml.BaseLoader)


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == ranktrial.__version__ == read("CITATION.cff")["version"]


def test_the_supported_pythons_are_declared_and_tested() -> None:
    declared = [one for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert declared == [f"Programming Language :: Python :: {version}" for version in PYTHONS]
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    job = read(".github/workflows/tests.yml")["jobs"]["tests"]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_all_addresses_are_of_one_place() -> None:
    homes = {"/".join(address.split("/")[:5]) for address in PROJECT["urls"].values()}
    assert homes == {read("CITATION.cff")["repository-code"]}
    assert set(PROJECT["urls"]) == {"Homepage", "Documentation", "Changelog", "Issues"}
    for address in PROJECT["urls"].values():
        path = address.partition("/blob/main/")[2]
        assert not path or (ROOT / path).is_file()


def test_the_citation_names_the_paper_as_the_readme_does() -> None:
    citation = read("CITATION.cff")
    (paper,) = citation["references"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    readme = (ROOT / "README.md").read_text()
    assert paper["title"] in readme
    assert paper["doi"] in readme
    assert citation["license"] == PROJECT["license"]


def test_what_is_promised_first_has_its_condition_beside_it() -> None:
    """Estimates by the click model are right where visitors follow it: who reads one sentence must not read more than that."""
    front = [ROOT.joinpath(file).read_text() for file in ("README.md", "docs/index.md", "CITATION.cff")]
    for text in (*front, PROJECT["description"], ranktrial.__doc__ or ""):
        for sentence in re.split(r"(?<=[.:])\s", text):
            if "systematic error" in sentence:
                assert "Where visitors click by relevance and rank" in sentence
            assert "no clicks" not in sentence or "on average" in sentence


def test_a_release_is_tried_before_it_is_published_without_a_password() -> None:
    jobs = read(".github/workflows/release.yml")["jobs"]
    assert "make package" in [step.get("run") for step in jobs["build"]["steps"]]
    assert (jobs["publish"]["needs"], jobs["publish"]["permissions"]) == ("build", {"id-token": "write"})
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()


def test_hooks_before_a_commit_are_what_make_runs() -> None:
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    makefile = (ROOT / "Makefile").read_text()
    for hook in hooks:
        tool = shlex.split(hook["entry"])[0].removeprefix(".venv/bin/")
        assert f"$(BIN)/{tool}" in makefile
