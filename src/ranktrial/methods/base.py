"""The base class of methods, value objects that print as they are written and parse back from that text.

To add one, write a small file with a frozen dataclass that derives from ``Method`` and defines ``displays``; the rest
(moments, placement, simulation, parsing) follows. Override ``simulate`` where displays are too many to list, and those of
the properties that do not hold. docs/how-to/add-a-method.md walks through one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import DocumentArray, FloatArray
from ranktrial.methods.beliefs import Beliefs, Evidence
from ranktrial.methods.displays import Displays, TooManyDisplaysError
from ranktrial.methods.expected import ExpectedRun
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Mixture, Moments, Pair, PlackettLuce
from ranktrial.seeds import Seed, children
from ranktrial.spelling import parsed_object, spelled_object
from ranktrial.users import User

MANY_IMPRESSIONS = 4_000_000

# Methods of the paper, by module: imported when a text names them. All others are registered when they are defined.
OF_THE_PAPER = {"LogOptNetwork": "ranktrial.paper.logopt_network"}


def spelled(default: Any) -> Any:
    """A dataclass field that a method's text always shows, even at its default."""
    return field(default=default, metadata={"spelled": True})


@dataclass(frozen=True, repr=False)
class Method:
    """Method to compare two rankers: a distribution over displays for each query, and the value of clicks on them.

    >>> from ranktrial.methods import AB, LogOpt, TeamDraft
    >>> [(method, method.tends_to_delta, method.runs_live) for method in (AB(), TeamDraft(), LogOpt())]
    [(AB(), True, True), (TeamDraft(), False, False), (LogOpt(), True, True)]
    """

    registry: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract:
            Method.registry[cls.__name__] = cls

    def displays(self, pair: Pair) -> Displays:
        """Every display of every query with its probability and the value of clicks on it."""
        raise NotImplementedError

    def policy(self, pair: Pair) -> Mixture | PlackettLuce:
        """Logging policy: the distribution over rankings that a ``Log`` of the method's impressions was drawn from."""
        return self.displays(pair).mixture

    def moments(self, pair: Pair, user: User) -> Moments:
        """Exact mean and variance of one impression's value under a user."""
        return self.displays(pair).moments(user)

    def planned_displays(self, pair: Pair, user: User) -> Displays:
        """Displays to plan with, as far as they are known before any click."""
        return self.displays(pair)

    def planned_moments(self, pair: Pair, user: User) -> Moments:
        """Moments to plan with, as far as they are known before any click."""
        return self.moments(pair, user)

    def placement(self, pair: Pair) -> FloatArray:
        """P(document at rank) as a (documents, k) matrix, exactly."""
        return self.displays(pair).mixture.placement()

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
        try:
            moments = self.moments(pair, user)
        except TooManyDisplaysError:
            moments = simulated_moments(self, pair, user, seed=seed)
        return ExpectedRun.of_moments(checkpoints, moments, step=self.step)

    def sampled_displays(self, pair: Pair, draws: int, *, seed: Seed) -> Displays:
        """``draws`` displays of every query, drawn by the method, where it ``draws_displays``."""
        raise TooManyDisplaysError(f"{self} cannot draw displays, only list them")

    def swapped(self) -> Self:
        """Return the method with the parts of A and B exchanged."""
        return self

    # Properties of a method. The defaults suit an interleaving method that lists its displays; a subclass overrides those that
    # differ with a property or, where options do not matter, with a class attribute (``tends_to_delta = True``).

    @property
    def tends_to_delta(self) -> bool:
        """True if E[x] is the difference in clicks, Delta; if not, only its sign is used."""
        return False

    @property
    def needs_position_bias(self) -> bool:
        """True if it tends to Delta only for position-based users whose position bias is the pair's ``theta``."""
        return False

    @property
    def fair_to_random_clicks(self) -> bool:
        """True if clicks that depend on the rank alone favour neither ranker: E[x] = 0, on lists of any length."""
        return True

    @property
    def zero_on_identical(self) -> bool:
        """True if x = 0 on every impression of a query for which both rankers have the same list."""
        return True

    @property
    def shows_top_only(self) -> bool:
        """True if every document shown is in the top k of a ranker."""
        return True

    @property
    def step(self) -> float:
        """A number of which every x is a whole multiple; 0 where there is none."""
        return 0.0

    @property
    def ab_shares(self) -> tuple[float, float]:
        """Shares of impressions that are set aside for A's own list and for B's; an A/B test's add up to 1."""
        return 0.0, 0.0

    @property
    def lists_displays(self) -> bool:
        """True if displays are listed before a simulation draws from them, instead of made anew for each impression."""
        return True

    @property
    def draws_displays(self) -> bool:
        """True if displays are mostly too many to list; ``sampled_displays`` draws some."""
        return False

    @property
    def averages_impressions(self) -> bool:
        """True if the estimate is the mean of x over impressions; if not, single impressions have no value of their own."""
        return True

    @property
    def adapts(self) -> bool:
        """True if displays or values change with the clicks that come in: exact moments hold for the first impressions."""
        return bool(self.learns_at)

    @property
    def learns_position_bias(self) -> bool:
        """True if position bias is estimated from the clicks on the way."""
        return False

    @property
    def learns_at(self) -> tuple[int, ...]:
        """Numbers of impressions after which it learns and may change its displays."""
        return ()

    @property
    def has_exact_limit(self) -> bool:
        """True if E[x] can be computed for a whole data set, up to the drawing of displays where it ``draws_displays``."""
        return True

    @property
    def runs_live(self) -> bool:
        """True if a live trial can run it."""
        return False

    __repr__ = spelled_object


class LiveMethod(Method, abstract=True):
    """Method that a live trial can run: it makes a design from two lists, and learns from the log."""

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

    @property
    def estimator(self) -> str:
        """The ``estimator`` of ``analysis.estimate`` by which a log of this method is valued."""
        raise NotImplementedError(f"{self} has no estimate from a log")

    @property
    def runs_live(self) -> bool:
        return True


def simulated_moments(method: Method, pair: Pair, user: User, *, seed: Seed) -> Moments:
    """Moments from a long simulated run, where displays are too many to list."""
    run = method.simulate(pair, user, [MANY_IMPRESSIONS], seed=seed)
    mean, square, ctr = float(run.estimate[0]), float(run.mean_square[0]), float(run.ctr[0])
    variance = square - mean**2
    return Moments(mean, variance, ctr, standard_error=float(np.sqrt(variance / MANY_IMPRESSIONS)))


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
