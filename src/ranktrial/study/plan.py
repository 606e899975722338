"""The plan of a study as one value, read from a TOML file or a preset: what is compared, on what data, by whose clicks.

A preset is a TOML file in ``presets/``; nothing can be said there that a file of your own cannot say. Every error names the
file, the key, the value and what would be right, before any work starts.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import resources
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.data import mslr_like, yahoo_like
from ranktrial.methods import parse_method
from ranktrial.users import User, cascade, position_based, rank_decay, trust_bias

PRESETS = ("smoke", "small", "paper", "departures", "depth", "wrong-bias", "users")
SYNTHETIC = {"yahoo-like": yahoo_like, "mslr-like": mslr_like}
TRAINED = ("code", "paper")
USERS = ("position-based", "trust-bias", "cascade")
FIRST_CHECKPOINT = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class PlanError(ValueError):
    """A plan that cannot be run; the message names the file and the key."""


class Task(NamedTuple):
    """The unit of work, of failure and of resuming: one method on one pair of rankers.

    Attributes:
        data: Name of the data set.
        pair: Rankers 2 pair and 2 pair + 1 are A and B; of given systems see ``systems.system_pairs``.
        method: As it is written.
        kind: "run" lets it have its impressions; "limit" finds what it would converge to.
    """

    data: str
    pair: int
    method: str
    kind: str = "run"

    def __str__(self) -> str:
        return f"{self.data}, pair {self.pair}, {self.what}"

    @property
    def what(self) -> str:
        return self.method if self.kind == "run" else f"limit of {self.method}"


@dataclass(frozen=True)
class DataPlan:
    """One data set and the rankers compared on it.

    Attributes:
        name: What results call it.
        source: "yahoo-like" or "mslr-like", a LETOR/SVMlight file, or a folder of which the training file is used; None
            where ``runs`` say what is ranked.
        queries: Size of a synthetic set; of files the first so many, None for all.
        seed: Of a synthetic set.
        rankers: Train them as the authors' "code" did (their shipped rankers' CTRs come out so) or as the "paper" says; or
            a file in the paper's format, of which rankers 2i and 2i + 1 are pair i.
        prefix: Chooses between sets in one folder, such as Yahoo's "set1".
        same_pairs_as: Train rankers and break ties with the seeds of the data set of this name: from the same source the same
            pairs, so that data sets that differ in k or user can be compared pair by pair.
        k: Results on a page here; None for the study's.
        user: Who clicks here; None for the study's.
        runs: Instead of ``source`` and ``rankers``, TREC run files of real systems, which are compared pair by pair.
        qrels: With ``runs``, the TREC file of judgements that gives their documents labels.
        scores: Instead of ``rankers``, files of real systems with a score per line and document of the source.
    """

    name: str
    source: str | None = None
    queries: int | None = None
    seed: int = 0
    rankers: str = "code"
    prefix: str | None = None
    same_pairs_as: str | None = None
    k: int | None = None
    user: UserPlan | None = None
    runs: tuple[str, ...] | None = None
    qrels: str | None = None
    scores: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}, must be letters, digits, '-', '_' and '.' only")
        checks.at_least("seed", self.seed, 0)
        if self.k is not None:
            checks.between("k", self.k, 1, 64)
        if self.queries is not None:
            checks.at_least("queries", self.queries, 2)
        elif self.synthetic:
            raise ValueError(f"queries is missing, a synthetic set ({self.source}) needs its size")
        if self.prefix is not None and self.synthetic:
            raise ValueError(f"prefix is {self.prefix!r}, must be left out for a synthetic set")
        self._check_systems()

    def _check_systems(self) -> None:
        if self.source is None and self.runs is None:
            raise ValueError("source is missing, must be a text in quotes; or give runs and qrels")
        if (self.runs is None) != (self.qrels is None):
            there, missing = ("qrels", "runs") if self.runs is None else ("runs", "qrels")
            raise ValueError(f"{missing} is missing, must come with {there}: run files and judgements belong together")
        how = "runs" if self.runs is not None else "scores"
        for name in ("source", "prefix", "scores") if self.runs is not None else ():
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, must be left out where runs are given")
        if self.systems is not None and self.rankers != "code":
            raise ValueError(f"rankers is {self.rankers!r}, must be left out where {how} are given")
        if self.systems is not None and len(set(self.systems)) < max(2, len(self.systems)):
            raise ValueError(f"{how} is {list(self.systems)}, must be two files or more, each once")

    @property
    def synthetic(self) -> bool:
        return self.source in SYNTHETIC

    @property
    def systems(self) -> tuple[str, ...] | None:
        """Files of the real systems that are compared; None where rankers are linear."""
        return self.scores if self.runs is None else self.runs

    def at_most(self, pairs: int) -> int:
        """So many pairs of rankers, or all that the given systems make if that is fewer."""
        return pairs if self.systems is None else min(pairs, comb(len(self.systems), 2))

    @property
    def system_names(self) -> list[str]:
        """What tables call the systems: names of their files, with folders only where they must be told apart by them."""
        names = [Path(file).name for file in self.systems or ()]
        return names if len(set(names)) == len(names) else list(self.systems or ())

    @property
    def seed_name(self) -> str:
        return self.same_pairs_as or self.name

    def files(self) -> list[Path]:
        """What must exist before the study can start."""
        named = [self.source] * (not self.synthetic) + [self.rankers] * (self.rankers not in TRAINED)
        return [Path(text) for text in (*named, *(self.systems or ()), self.qrels) if text is not None]


@dataclass(frozen=True)
class UserPlan:
    """Who clicks.

    Attributes:
        kind: "position-based" (the paper's), "trust-bias" or "cascade".
        eta: Examination falls as theta_r = 1 / r^eta.
        assumed_eta: What methods that are told the position bias are told; None for the truth.
        zeta: P(click | examined) by relevance label, from 0.
        relevant: Trust bias: P(click | examined, relevant) by rank.
        irrelevant: Trust bias: P(click | examined, not relevant) by rank; None for 0.3 / r.
        leave_after_click: Cascade: P(stops reading after a click).
        leave_after_skip: Cascade: P(stops reading after a document not clicked).
    """

    kind: str = "position-based"
    eta: float = 1.0
    assumed_eta: float | None = None
    zeta: tuple[float, ...] = (0.1, 0.325, 0.55, 0.775, 1.0)
    relevant: tuple[float, ...] | None = None
    irrelevant: tuple[float, ...] | None = None
    leave_after_click: float = 0.5
    leave_after_skip: float = 0.1

    def __post_init__(self) -> None:
        checks.one_of("kind", self.kind, USERS)
        checks.between("eta", self.eta, 0, 10)
        if self.assumed_eta is not None:
            checks.between("assumed_eta", self.assumed_eta, 0, 10)
        if len(checks.probabilities("zeta", self.zeta)) == 0:
            raise ValueError("zeta is empty, must have a probability for every label from 0")
        for name, only in (("relevant", "trust-bias"), ("irrelevant", "trust-bias")):
            values = getattr(self, name)
            if values is not None and self.kind != only:
                raise ValueError(f'{name} is for kind = "{only}", but kind is "{self.kind}"')
            if values is not None:
                checks.probabilities(name, values)
        checks.between("leave_after_click", self.leave_after_click, 0, 1)
        checks.between("leave_after_skip", self.leave_after_skip, 0, 1)

    def theta(self, k: int) -> FloatArray:
        """Position bias as methods are told it."""
        return rank_decay(k, self.eta if self.assumed_eta is None else self.assumed_eta)

    def build(self, zeta: FloatArray, k: int) -> User:
        theta = rank_decay(k, self.eta)
        if self.kind == "cascade":
            leaving = {"leave_after_click": self.leave_after_click, "leave_after_skip": self.leave_after_skip}
            return cascade(zeta, k, theta=theta, **leaving)
        if self.kind == "trust-bias":
            relevant = np.ones(k) if self.relevant is None else np.asarray(self.relevant)
            irrelevant = 0.3 / np.arange(1, k + 1) if self.irrelevant is None else np.asarray(self.irrelevant)
            return trust_bias(zeta, theta, relevant=relevant, irrelevant=irrelevant)
        return position_based(zeta, theta)


@dataclass(frozen=True)
class StudyPlan:
    """A whole study: every method on every pair of rankers of every data set.

    Attributes:
        data: The data sets.
        methods: As text; each prints as it is parsed.
        pairs: Pairs of rankers on each data set; of given systems as many as there are, if that is fewer.
        impressions: Impressions each method gets on each pair.
        checkpoints: At how many numbers of impressions results are kept, log-spaced from 100.
        k: Results on a page.
        seed: Of everything but synthetic sets. A task's own seed depends on this, its data set's name, its pair and its
            method, and on nothing else in the plan.
        user: Who clicks.
        limits: On how many pairs of each data set to find what each method would converge to, if it has such a limit. Expected
            runs tell that anyway; more than ``pairs`` adds pairs without a run.
        simulate: Simulate single runs, as the paper did, instead of working out what they come to on average.
        runs: How often what must be drawn for an expected run is drawn; errors are averaged.
    """

    data: tuple[DataPlan, ...]
    methods: tuple[str, ...]
    pairs: int
    impressions: int
    checkpoints: int = 50
    k: int = 10
    seed: int = 1
    user: UserPlan = field(default_factory=UserPlan)
    limits: int = 0
    simulate: bool = False
    runs: int = 1

    def __post_init__(self) -> None:
        checks.at_least("pairs", self.pairs, 1)
        checks.at_least("limits", self.limits, 0)
        checks.at_least("impressions", self.impressions, 1)
        checks.at_least("runs", self.runs, 1)
        if self.simulate and self.runs > 1:
            raise ValueError(f"runs is {self.runs}, must be 1 where single runs are simulated")
        checks.at_least("checkpoints", self.checkpoints, 1)
        checks.between("k", self.k, 1, 64)
        checks.at_least("seed", self.seed, 0)
        if not self.data:
            raise ValueError("data is empty, must name a data set")
        names = [data.name for data in self.data]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"data has two sets called {name!r}, names must differ")
        if not self.methods:
            raise ValueError("methods is empty, must name a method")
        object.__setattr__(self, "methods", tuple(str(parse_method(text)) for text in self.methods))
        for method in self.methods:
            if self.methods.count(method) > 1:
                raise ValueError(f"methods has {method} twice")
        # A user that cannot be built must not be found out after the data sets have been prepared.
        for data in self.data:
            self.user_of(data).build(np.zeros(1), self.k_of(data))

    @property
    def points(self) -> IntArray:
        """The checkpoints: distinct whole numbers, the last is ``impressions``."""
        first = min(FIRST_CHECKPOINT, self.impressions)
        spaced = np.geomspace(first, self.impressions, self.checkpoints) if self.checkpoints > 1 else [self.impressions]
        return np.unique(np.round(spaced).astype(np.int64))

    def k_of(self, data: DataPlan) -> int:
        return self.k if data.k is None else data.k

    def user_of(self, data: DataPlan) -> UserPlan:
        return self.user if data.user is None else data.user

    @property
    def n_rankers(self) -> int:
        """How many rankers each data set needs."""
        return 2 * max(self.pairs, self.limits)

    def tasks(self) -> Iterator[Task]:
        """Runs, in the order of the rows of the results."""
        for data in self.data:
            for pair in range(data.at_most(self.pairs)):
                for method in self.methods:
                    yield Task(data.name, pair, method)

    def limit_tasks(self) -> Iterator[Task]:
        """Limits that no expected run tells."""
        for data in self.data:
            first = 0 if self.simulate else data.at_most(self.pairs)
            for pair in range(first, data.at_most(self.limits)):
                for method in self.methods_with_limits:
                    yield Task(data.name, pair, method, "limit")

    @property
    def methods_with_limits(self) -> list[str]:
        return [method for method in self.methods if parse_method(method).has_exact_limit]

    def all_tasks(self) -> Iterator[Task]:
        yield from self.tasks()
        yield from self.limit_tasks()

    def to_dict(self) -> dict[str, Any]:
        """In the shape of the TOML file; keys that are not set are left out."""
        values: dict[str, Any] = _without_none(asdict(self))
        values["data"] = {data.pop("name"): data for data in values["data"]}
        return values

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str, base: Path) -> StudyPlan:
        """Read a plan; ``where`` names it in errors, files in it are relative to ``base``."""
        top = _Table(values, where)
        own = top.read(cls, tables=["data", "user"])
        sets = top.table("data")
        data = tuple(_data_plan(sets.table(name), name, base) for name in sets.values)
        user = _user_plan(top.table("user")) if "user" in values else UserPlan()
        with top.named():
            return cls(data=data, user=user, **own)

    def conflicts(self, other: StudyPlan) -> list[str]:
        """Why the other plan cannot continue this one, in words.

        It can if it has more pairs, limits or data sets, or other methods: a task is the same whatever else is in the plan.
        """
        before, after = self.to_dict(), other.to_dict()
        after["data"] = {name: data for name, data in after["data"].items() if name in before["data"]}
        free = ["methods", *(name for name in ("pairs", "limits") if after[name] >= before[name])]
        there, now = ({key: value for key, value in plan.items() if key not in free} for plan in (before, after))
        return differences(there, now)

    def settings(self) -> dict[str, Any]:
        """What a task's result depends on beside its data set, pair and method; without places of files, which differ between
        machines."""
        values = {key: value for key, value in self.to_dict().items() if key not in ("methods", "pairs", "limits")}
        for data, name in zip(self.data, values["data"]):
            said = [data.source] * data.synthetic + [data.rankers] * (data.rankers in TRAINED)
            places = ("source", "rankers", "runs", "qrels", "scores")
            values["data"][name] = {
                key: value for key, value in values["data"][name].items() if key not in places or value in said
            }
        return values


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two tables of settings, in words."""
    before, after = dict(_flat(there)), dict(_flat(now))
    return [
        f"{key} is {_shown(before, key)} there and {_shown(after, key)} now"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def read_plan(source: str) -> StudyPlan:
    """The plan a preset's name or a TOML file's path stands for."""
    if source in PRESETS:
        file = resources.files("ranktrial.study") / "presets" / f"{source}.toml"
        return _parse(file.read_text(), source, Path.cwd())
    path = Path(source)
    if not path.is_file():
        raise PlanError(f"no file {source!r}, and no preset of that name; presets: {', '.join(PRESETS)}")
    return _parse(path.read_text(), str(path), path.absolute().parent)


def _parse(text: str, where: str, base: Path) -> StudyPlan:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise PlanError(f"{where}: not a TOML file: {problem}") from None
    return StudyPlan.from_dict(values, where, base)


# How each kind of field is read from TOML, by its annotation, and what it must be.
_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bool": (lambda v: v if isinstance(v, bool) else None, "true or false"),
    "int": (lambda v: v if isinstance(v, int) and not isinstance(v, bool) else None, "a whole number"),
    "float": (lambda v: float(v) if _is_number(v) else None, "a number"),
    "str": (lambda v: v if isinstance(v, str) else None, "a text in quotes"),
    "tuple[float, ...]": (
        lambda v: tuple(map(float, v)) if isinstance(v, list) and all(map(_is_number, v)) else None,
        "a list of numbers",
    ),
    "tuple[str, ...]": (
        lambda v: tuple(v) if isinstance(v, list) and all(isinstance(text, str) for text in v) else None,
        'a list of texts such as ["one", "two"]',
    ),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Table:
    """A table of the file, read into the fields of a dataclass; every complaint names file and key."""

    def __init__(self, values: Any, where: str, path: str = "") -> None:
        self.where, self.path = where, path
        if not isinstance(values, Mapping):
            raise PlanError(f"{where}: {path} is {values!r}, must be a table [{path}]")
        self.values = values

    @property
    def place(self) -> str:
        return f"{self.where}: [{self.path}] " if self.path else f"{self.where}: "

    def table(self, name: str) -> _Table:
        path = f"{self.path}.{name}" if self.path else name
        if name not in self.values:
            raise PlanError(f"{self.where}: table [{path}] is missing")
        return _Table(self.values[name], self.where, path)

    def read(self, into: type[Any], *, tables: Sequence[str] = (), given: Sequence[str] = ()) -> dict[str, Any]:
        """What the file says for the fields of a dataclass, but for those that are tables or given otherwise."""
        wanted = {f.name: f for f in fields(into) if f.name not in given}
        for name in self.values:
            if name not in wanted:
                close = difflib.get_close_matches(name, wanted, 1)
                hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(wanted)}"
                raise PlanError(f"{self.place}no key {name!r}; {hint}")
        found = {}
        for name, one in wanted.items():
            if name in tables:
                continue
            read, must = _READERS[str(one.type).removesuffix(" | None")]
            if name in self.values:
                found[name] = read(self.values[name])
                if found[name] is None:
                    raise PlanError(f"{self.place}{name} is {self.values[name]!r}, must be {must}")
            elif one.default is MISSING:
                raise PlanError(f"{self.place}{name} is missing, must be {must}")
        return found

    def named(self) -> _Named:
        return _Named(self.place)


class _Named:
    """Puts file and table before the complaint of a dataclass about its values."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if isinstance(problem, ValueError) and not isinstance(problem, PlanError):
            raise PlanError(f"{self.place}{problem}") from None


def _data_plan(table: _Table, name: str, base: Path) -> DataPlan:
    values = table.read(DataPlan, tables=["user"], given=["name"])
    for key, known in (("source", SYNTHETIC), ("rankers", TRAINED), ("qrels", ())):
        if key in values and values[key] not in known:
            values[key] = str(base / Path(values[key]).expanduser())
    for key in ("runs", "scores"):
        if key in values:
            values[key] = tuple(str(base / Path(file).expanduser()) for file in values[key])
    user = _user_plan(table.table("user")) if "user" in table.values else None
    with table.named():
        return DataPlan(name=name, user=user, **values)


def _user_plan(table: _Table) -> UserPlan:
    values = table.read(UserPlan)
    with table.named():
        return UserPlan(**values)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(v) for key, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list | tuple) else value


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key]) if key in values else "not set"
