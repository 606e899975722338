"""Plan of a study, read from a TOML file or a preset: methods, data sets and simulated users.

A preset is a TOML file in ``presets/``; nothing can be said there that a file of your own cannot say. Every error names the
file, the key, the value and what would be right, before any work starts.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from math import comb
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from pydantic import Strict, TypeAdapter, ValidationError

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods import parse_method
from ranktrial.paper.data import mslr_like, yahoo_like
from ranktrial.users import User, cascade, mixed_devices, position_based, rank_decay, trust_bias

PRESETS = ("smoke", "small", "paper", "departures", "depth", "wrong-bias", "users")
SYNTHETIC = {"yahoo-like": yahoo_like, "mslr-like": mslr_like}
TRAINED = ("code", "paper")
USERS = ("position-based", "trust-bias", "cascade", "two-devices")
FIRST_CHECKPOINT = 100

T = TypeVar("T")

# Types of what a plan says, as TOML has them: neither "3" nor 3.0 is a whole number.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Text = Annotated[str, Strict()]
Numbers = tuple[Number, ...]
Texts = tuple[Text, ...]
_MUST_BE = {
    "Flag": "true or false",
    "Whole": "a whole number",
    "Number": "a number",
    "Text": "a text in quotes",
    "Numbers": "a list of numbers",
    "Texts": 'a list of texts such as ["one", "two"]',
    "tuple[DataPlan, ...]": "a table [data.NAME] for each data set",
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class PlanError(ValueError):
    """A plan that cannot be run; the message names the file and the key."""


class Task(NamedTuple):
    """The unit of work, of failure and of resuming: one method on one pair of rankers.

    Attributes:
        data: Name of the data set.
        pair: Rankers 2 pair and 2 pair + 1 are A and B; of given systems see ``systems.system_pairs``.
        method: Text of the method.
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
        name: Name in results.
        source: "yahoo-like" or "mslr-like", a LETOR/SVMlight file, or a folder of which the training file is used; None
            where ``runs`` say what is ranked.
        queries: Size of a synthetic set; of files the first so many, None for all.
        seed: Seed of a synthetic set.
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

    name: Text
    source: Text | None = None
    queries: Whole | None = None
    seed: Whole = 0
    rankers: Text = "code"
    prefix: Text | None = None
    same_pairs_as: Text | None = None
    k: Whole | None = None
    user: UserPlan | None = None
    runs: Texts | None = None
    qrels: Text | None = None
    scores: Texts | None = None

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
        """Number of pairs of rankers: the given one, or that of all pairs of the given systems if it is less."""
        return pairs if self.systems is None else min(pairs, comb(len(self.systems), 2))

    @property
    def system_names(self) -> list[str]:
        """Names of the systems in tables: those of their files, with folders only if file names are not unique."""
        names = [Path(file).name for file in self.systems or ()]
        return names if len(set(names)) == len(names) else list(self.systems or ())

    @property
    def seed_name(self) -> str:
        return self.same_pairs_as or self.name

    def files(self) -> list[Path]:
        """Files that must exist before the study can start."""
        named = [self.source] * (not self.synthetic) + [self.rankers] * (self.rankers not in TRAINED)
        return [Path(text) for text in (*named, *(self.systems or ()), self.qrels) if text is not None]


@dataclass(frozen=True)
class UserPlan:
    """Simulated user of a study.

    Attributes:
        kind: "position-based" (the paper's), "trust-bias", "cascade" or "two-devices".
        eta: Examination falls as theta_r = 1 / r^eta.
        assumed_eta: The eta given to methods that are given the position bias; None for the true one.
        zeta: P(click | examined) by relevance label, from 0.
        relevant: Trust bias: P(click | examined, relevant) by rank.
        irrelevant: Trust bias: P(click | examined, not relevant) by rank; None for 0.3 / r.
        leave_after_click: Cascade: P(stops reading after a click).
        leave_after_skip: Cascade: P(stops reading after a document not clicked).
        phones: Two devices: share of searches on phones; None for a half.
        visible: Two devices: results that a phone shows; None for 4.
    """

    kind: Text = "position-based"
    eta: Number = 1.0
    assumed_eta: Number | None = None
    zeta: Numbers = (0.1, 0.325, 0.55, 0.775, 1.0)
    relevant: Numbers | None = None
    irrelevant: Numbers | None = None
    leave_after_click: Number = 0.5
    leave_after_skip: Number = 0.1
    phones: Number | None = None
    visible: Whole | None = None

    def __post_init__(self) -> None:
        checks.one_of("kind", self.kind, USERS)
        checks.between("eta", self.eta, 0, 10)
        if self.assumed_eta is not None:
            checks.between("assumed_eta", self.assumed_eta, 0, 10)
        if len(checks.probabilities("zeta", self.zeta)) == 0:
            raise ValueError("zeta is empty, must have a probability for every label from 0")
        for only, names in (("trust-bias", ("relevant", "irrelevant")), ("two-devices", ("phones", "visible"))):
            for name in names:
                if getattr(self, name) is not None and self.kind != only:
                    raise ValueError(f'{name} is for kind = "{only}", but kind is "{self.kind}"')
        for name in ("relevant", "irrelevant"):
            if (values := getattr(self, name)) is not None:
                checks.probabilities(name, values)
        if self.phones is not None:
            checks.between("phones", self.phones, 0, 1, open_ends=True)
        checks.between("leave_after_click", self.leave_after_click, 0, 1)
        checks.between("leave_after_skip", self.leave_after_skip, 0, 1)

    def theta(self, k: int) -> FloatArray:
        """Position bias as methods are told it: one for all devices, that of their average visitor."""
        if self.kind == "two-devices" and self.assumed_eta is None:
            phones, visible = self._devices()
            return rank_decay(k, self.eta) * np.where(np.arange(k) < visible, 1.0, 1.0 - phones)
        return rank_decay(k, self.eta if self.assumed_eta is None else self.assumed_eta)

    def _devices(self) -> tuple[float, int]:
        return 0.5 if self.phones is None else self.phones, 4 if self.visible is None else self.visible

    def build(self, zeta: FloatArray, k: int) -> User:
        theta = rank_decay(k, self.eta)
        if self.kind == "cascade":
            leaving = {"leave_after_click": self.leave_after_click, "leave_after_skip": self.leave_after_skip}
            return cascade(zeta, k, theta=theta, **leaving)
        if self.kind == "trust-bias":
            relevant = np.ones(k) if self.relevant is None else np.asarray(self.relevant)
            irrelevant = 0.3 / np.arange(1, k + 1) if self.irrelevant is None else np.asarray(self.irrelevant)
            return trust_bias(zeta, theta, relevant=relevant, irrelevant=irrelevant)
        if self.kind == "two-devices":
            phones, visible = self._devices()
            return mixed_devices(zeta, k, phones=phones, visible=visible, eta=self.eta)
        return position_based(zeta, theta)


@dataclass(frozen=True)
class StudyPlan:
    """A whole study: every method on every pair of rankers of every data set.

    Attributes:
        data: The data sets.
        methods: Texts of the methods; each prints as it is parsed.
        pairs: Pairs of rankers on each data set; of given systems as many as there are, if that is fewer.
        impressions: Impressions each method gets on each pair.
        checkpoints: At how many numbers of impressions results are kept, log-spaced from 100.
        k: Results on a page.
        seed: Seed of everything but synthetic sets. A task's own seed depends on this, its data set's name, its pair and its
            method, and on nothing else in the plan.
        user: Who clicks.
        limits: On how many pairs of each data set to find what each method would converge to, if it has such a limit. Expected
            runs tell that anyway; more than ``pairs`` adds pairs without a run.
        simulate: Simulate single runs, as the paper did, instead of working out what they come to on average.
        runs: How often what must be drawn for an expected run is drawn; errors are averaged.
    """

    data: tuple[DataPlan, ...]
    methods: Texts
    pairs: Whole
    impressions: Whole
    checkpoints: Whole = 50
    k: Whole = 10
    seed: Whole = 1
    user: UserPlan = field(default_factory=UserPlan)
    limits: Whole = 0
    simulate: Flag = False
    runs: Whole = 1

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
        """Number of rankers that each data set needs."""
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
        return [method for method in self.methods if parse_method(method).traits.has_exact_limit]

    def all_tasks(self) -> Iterator[Task]:
        yield from self.tasks()
        yield from self.limit_tasks()

    def to_dict(self) -> dict[str, Any]:
        """Plan in the shape of the TOML file, without keys that are not set."""
        values: dict[str, Any] = _without_none(asdict(self))
        values["data"] = {data.pop("name"): data for data in values["data"]}
        return values

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str, base: Path) -> StudyPlan:
        """Read a plan; ``where`` names it in errors, files in it are relative to ``base``."""
        table = dict(_table(values, where, ""))
        given: dict[str, Any] = {}
        if "user" in table:
            given["user"] = _read(UserPlan, table.pop("user"), where, "user")
        if "data" in table:
            sets = _table(table.pop("data"), where, "data")
            given["data"] = tuple(_data_plan(one, name, where, base) for name, one in sets.items())
        return _read(cls, table, where, **given)

    def conflicts(self, other: StudyPlan) -> list[str]:
        """Reasons why the other plan cannot continue this one; empty if it can.

        It can if it has more pairs, limits or data sets, or other methods: a task is the same whatever else is in the plan.
        """
        before, after = self.to_dict(), other.to_dict()
        after["data"] = {name: data for name, data in after["data"].items() if name in before["data"]}
        free = ["methods", *(name for name in ("pairs", "limits") if after[name] >= before[name])]
        there, now = ({key: value for key, value in plan.items() if key not in free} for plan in (before, after))
        return differences(there, now)

    def settings(self) -> dict[str, Any]:
        """Settings that a task's result depends on, beside its data set, pair and method; without paths of files."""
        values = {key: value for key, value in self.to_dict().items() if key not in ("methods", "pairs", "limits")}
        for data, name in zip(self.data, values["data"]):
            said = [data.source] * data.synthetic + [data.rankers] * (data.rankers in TRAINED)
            places = ("source", "rankers", "runs", "qrels", "scores")
            values["data"][name] = {
                key: value for key, value in values["data"][name].items() if key not in places or value in said
            }
        return values


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Differences between two tables of settings, each as a sentence."""
    before, after = dict(_flat(there)), dict(_flat(now))
    return [
        f"{key} is {_shown(before, key)} there and {_shown(after, key)} now"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def read_plan(source: str) -> StudyPlan:
    """The plan a preset's name or a TOML file's path stands for."""
    if source in PRESETS:
        file = resources.files("ranktrial.paper.study") / "presets" / f"{source}.toml"
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


def _data_plan(values: Any, name: str, where: str, base: Path) -> DataPlan:
    path = f"data.{name}"
    table = dict(_table(values, where, path))
    given: dict[str, Any] = {"name": name}
    for key, known in (("source", SYNTHETIC), ("rankers", TRAINED), ("qrels", ())):
        if isinstance(table.get(key), str) and table[key] not in known:
            table[key] = _placed(table[key], base)
    for key in ("runs", "scores"):
        if isinstance(table.get(key), list) and all(isinstance(file, str) for file in table[key]):
            table[key] = [_placed(file, base) for file in table[key]]
    if "user" in table:
        given["user"] = _read(UserPlan, table.pop("user"), where, f"{path}.user")
    return _read(DataPlan, table, where, path, **given)


def _placed(file: str, base: Path) -> str:
    return str(base / Path(file).expanduser())


def _table(values: Any, where: str, path: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise PlanError(f"{where}: {path} is {values!r}, must be a table [{path}]")
    return values


def _read(into: type[T], values: Any, where: str, path: str = "", **given: Any) -> T:
    """One table of the file as a dataclass, with fields that are ``given`` otherwise; errors name file, table and key."""
    place = f"{where}: [{path}] " if path else f"{where}: "
    types = {one.name: str(one.type).removesuffix(" | None") for one in fields(into) if one.name != "name"}  # type: ignore[arg-type]
    for key in _table(values, where, path):
        if key not in types:
            close = difflib.get_close_matches(key, types, 1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(types)}"
            raise PlanError(f"{place}no key {key!r}; {hint}")
    try:
        return TypeAdapter(into).validate_python({**values, **given})
    except ValidationError as problem:
        error = problem.errors()[0]
    if error["type"] == "value_error":
        raise PlanError(f"{place}{error['ctx']['error']}")
    key = str(error["loc"][0])
    wrong = "missing" if error["type"] == "missing" else repr(values[key])
    raise PlanError(f"{place}{key} is {wrong}, must be {_MUST_BE[types[key]]}")


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
