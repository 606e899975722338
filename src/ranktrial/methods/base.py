"""The base class of methods, value objects that print as they are written and parse back from that text.

To add one, write a small file with a frozen dataclass that derives from ``Method`` and defines ``displays``; the rest
(moments, simulation, parsing) follows. Override ``drawn_moments`` and ``simulate`` where displays are too many to list, and
state the ``traits`` that are not those of interleaving. docs/how-to/add-a-method.md walks through one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from ranktrial.arrays import DocumentArray, FloatArray
from ranktrial.methods.beliefs import Beliefs, Evidence
from ranktrial.methods.displays import Displays
from ranktrial.methods.expected import ExpectedRun
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Mixture, Moments, Pair, PlackettLuce
from ranktrial.seeds import Seed, children
from ranktrial.spelling import parsed_object, spelled_object
from ranktrial.users import User

# Methods of the paper, by module: imported when a text names them. All others are registered when they are defined.
OF_THE_PAPER = {"LogOptNetwork": "ranktrial.paper.logopt_network"}


def spelled(default: Any) -> Any:
    """A dataclass field that a method's text always shows, even at its default."""
    return field(default=default, metadata={"spelled": True})


@dataclass(frozen=True)
class Traits:
    """Known facts about a method, which the checks of ``ranktrial.testing`` hold it to; the defaults suit interleaving.

    Attributes:
        tends_to_delta: E[x] is the difference in clicks, Delta; if not, only its sign is used.
        needs_position_bias: It tends to Delta only for position-based users whose position bias is the pair's ``theta``.
        fair_to_random_clicks: Clicks that depend on the rank alone favour neither ranker: E[x] = 0, on lists of any length.
        zero_on_identical: x = 0 on every impression of a query for which both rankers have the same list.
        shows_top_only: Every document shown is in the top k of a ranker.
        step: A number of which every x is a whole multiple; 0 where there is none.
        ab_shares: Shares of impressions set aside for A's own list and for B's; an A/B test's add up to 1.
        lists_displays: Displays are listed before a simulation draws from them, instead of made anew for each impression.
        averages_impressions: The estimate is the mean of x over impressions; if not, single impressions have no value.
        has_exact_limit: E[x] can be computed for a whole data set, up to the drawing of displays too many to list.
        learns_position_bias: Position bias is estimated from the clicks on the way.
        learns_at: Numbers of impressions after which it learns and may change its displays: exact moments hold for the first
            impressions only.
        estimator: The ``estimator`` of ``analysis.estimate`` by which its log is valued; "" where no live trial can run it.
    """

    tends_to_delta: bool = False
    needs_position_bias: bool = False
    fair_to_random_clicks: bool = True
    zero_on_identical: bool = True
    shows_top_only: bool = True
    step: float = 0.0
    ab_shares: tuple[float, float] = (0.0, 0.0)
    lists_displays: bool = True
    averages_impressions: bool = True
    has_exact_limit: bool = True
    learns_position_bias: bool = False
    learns_at: tuple[int, ...] = ()
    estimator: str = ""

    @property
    def runs_live(self) -> bool:
        """True if a live trial can run the method."""
        return bool(self.estimator)


@dataclass(frozen=True, repr=False)
class Method:
    """Method to compare two rankers: a distribution over displays for each query, and the value of clicks on them.

    >>> from ranktrial.methods import AB, LogOpt, TeamDraft
    >>> [(method, method.traits.tends_to_delta, method.traits.runs_live) for method in (AB(), TeamDraft(), LogOpt())]
    [(AB(), True, True), (TeamDraft(), False, False), (LogOpt(), True, True)]
    """

    registry: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if misplaced := vars(cls).keys() & {one.name for one in fields(Traits)}:
            name = min(misplaced)
            raise TypeError(f"{cls.__name__} has {name}, which is one of its traits: traits = Traits({name}=...)")
        if not abstract:
            Method.registry[cls.__name__] = cls

    @property
    def traits(self) -> Traits:
        """Known facts about the method; a subclass sets them (``traits = Traits(step=1.0)``) or works them out."""
        return Traits()

    def displays(self, pair: Pair) -> Displays:
        """Every display of every query with its probability and the value of clicks on it."""
        raise NotImplementedError

    def policy(self, pair: Pair) -> Mixture | PlackettLuce:
        """Logging policy: the distribution over rankings that a ``Log`` of the method's impressions was drawn from."""
        return self.displays(pair).mixture

    def moments(self, pair: Pair, user: User) -> Moments:
        """Exact mean and variance of one impression's value under a user."""
        return self.displays(pair).moments(user)

    def drawn_moments(self, pair: Pair, user: User, *, seed: Seed) -> Moments:
        """Moments from drawn displays, where they are too many to list; exact elsewhere."""
        return self.moments(pair, user)

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        """Run the method on simulated users; the estimate and its errors at each checkpoint.

        Args:
            pair: The two rankers; queries come uniformly at random.
            user: The simulated user.
            checkpoints: Increasing numbers of impressions to report at; the last is the length of the run.
            seed: An integer or a SeedSequence; the same seed gives the same run to the last bit.
            shortcut: False goes impression by impression even where the same law can be drawn at once.
        """
        return self.displays(pair).simulate(user, checkpoints, seed=seed)

    def expected(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int = 1) -> ExpectedRun:
        """Expected run: the distribution of the estimate at each checkpoint, and its expected errors.

        Args:
            pair: The two rankers; queries come uniformly at random.
            user: The simulated user.
            checkpoints: Increasing numbers of impressions to report at.
            seed: Seed of the parts that are drawn even so: displays too many to list, and clicks that a later fit needs.
            runs: Number of times to draw these clicks; errors are averaged.
        """
        return ExpectedRun.of_moments(checkpoints, self.drawn_moments(pair, user, seed=seed), step=self.traits.step)

    def swapped(self) -> Self:
        """Return the method with the parts of A and B exchanged."""
        return self

    __repr__ = spelled_object


class LiveMethod(Method, abstract=True):
    """Method that a live trial can run: it makes a design from two lists, and learns from the log.

    Its traits name the ``estimator`` of its log.
    """

    def query_policy(
        self, a: DocumentArray, b: DocumentArray, beliefs: Beliefs, effects: FloatArray | None = None
    ) -> tuple[DocumentArray, FloatArray]:
        """Logging policy of one query, given two lists of document numbers from 0: rankings and their probabilities.

        ``effects`` are the fitted document effects on relevance, beyond the ranks in the lists, where they are known.
        Where the method has ``ab_shares``, the last two rankings are A's own list and B's own.
        """
        raise NotImplementedError(f"{self} cannot run live")

    def learn(self, evidence: Evidence, beliefs: Beliefs) -> Beliefs:
        """Update the beliefs from a log; see ``beliefs.learnt``."""
        return beliefs


def simulated_average(
    method: Method, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int
) -> ExpectedRun:
    """Averages of simulated runs, where the law of the estimate is not known."""
    return ExpectedRun.of_runs([method.simulate(pair, user, checkpoints, seed=child) for child in children(seed, runs)])


def known_methods() -> list[str]:
    """Names of all methods, in alphabetical order.

    >>> known_methods()[:3], "LogOptNetwork" in known_methods()
    (['AB', 'Balanced', 'Counterfactual'], True)
    """
    return sorted({*Method.registry, *OF_THE_PAPER})


def _method_named(name: str) -> type[Method] | None:
    if name in OF_THE_PAPER:
        found: type[Method] = getattr(import_module(OF_THE_PAPER[name]), name)
        return found
    return Method.registry.get(name)


def parse_method(text: str) -> Method:
    """The method that a text names.

    >>> parse_method("Probabilistic( tau = 3.0 )"), parse_method("AB")
    (Probabilistic(tau=3), AB())
    """
    return parsed_object(text, _method_named, known_methods(), what="a method", example="Probabilistic(tau=4)")
