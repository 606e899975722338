"""Guardrails in plain words: statement, group, usual cause of a failure, and remedy of each."""

from __future__ import annotations

from typing import NamedTuple

from ranktrial.analysis.guardrails.status import Group, Guardrail


class Advice(NamedTuple):
    """Explanation of a guardrail for people.

    Attributes:
        group: Topic that it belongs to.
        title: Statement that is checked.
        cause: Usual cause of a warning or a failure.
        remedy: Advice for that case.
    """

    group: Group
    title: str
    cause: str
    remedy: str


ADVICE = {
    "how people click": Advice(
        "assumptions",
        "The click model agrees with A/B traffic",
        "People click for more reasons than relevance and rank: they trust what stands first, or results compete.",
        "Nothing needs mending: the estimate that assumes less is used, and takes more searches. A version with a larger "
        "hold-back gets there sooner.",
    ),
    "position bias": Advice(
        "assumptions",
        "How much each rank is looked at is known",
        "There are too few clicks yet to fit it, or the theta or eta that was given is not that of this page.",
        'Wait for more clicks. Where it was given, start a version with bias="estimated".',
    ),
    "position-based clicking": Advice(
        "assumptions",
        "A click does not depend on what stands above it",
        "People stop once they have found what they wanted.",
        "The A/B estimate is reported instead, once there is enough A/B traffic: a version with a larger hold-back, or "
        'AB(estimate="adjusted"), gets there sooner.',
    ),
    "independent clicks": Advice(
        "assumptions",
        "Clicks on one page do not depend on each other",
        "Some visitors click on everything, which harms nothing, or visitors leave after a click, which does.",
        "Nothing needs mending: the interval is wider by what this could do to the answer.",
    ),
    "visitors look alike": Advice(
        "assumptions",
        "All visitors look down the page alike",
        "Phones show fewer results at once than desktops, and nobody said which search came from which; or visitors stop "
        "reading at different places.",
        'One position bias is a little wrong for all, and more so for some. Declare the device (segments={"device": [...]}) '
        "and send it with every search: each then has its own.",
    ),
    "coverage": Advice(
        "assumptions",
        "Every result that matters could be shown",
        "Designs never show some results on which the rankers differ.",
        "Start a version with a hold-back above 0: it shows both lists as they are.",
    ),
    "the difference over time": Advice(
        "assumptions",
        "The difference stays the same",
        "A ranker, the catalogue or the visitors changed on the way.",
        "Find out what changed at that time. If it was a ranker, start a new version; the report is of the time since.",
    ),
    "clicks per page over time": Advice(
        "assumptions",
        "Visitors click as much as before",
        "A campaign, a season, other searches; or clicks are recorded in another way than before.",
        "Make sure that click events did not change then. Otherwise nothing needs mending.",
    ),
    "position bias over time": Advice(
        "assumptions",
        "Visitors look at ranks as before",
        "The page was changed, or more visitors come with a phone than before.",
        "Start a new version for the new page. Until then an estimate without position bias is used.",
    ),
    "sample ratio": Advice(
        "data",
        "A, B and mixed pages are drawn as often as designed",
        "Searches of one kind get lost: a filter for robots, a cache, an error after the draw.",
        "Show what rank returned whenever it was called, and filter before rank, not after it.",
    ),
    "placement calibration": Advice(
        "data",
        "Rankings are drawn as often as designed",
        "Searches of some rankings get lost, as for the sample ratio.",
        "Show what rank returned whenever it was called, and filter before rank, not after it.",
    ),
    "the page shows what was drawn": Advice(
        "data",
        "Pages show what was drawn",
        "A cache hands one answer to many visitors, a template sorts again, or a fallback shows A's list with our id.",
        "Show the ranking as it came, to the visitor it was drawn for. Events with positions or seen lists tell which page "
        "does not.",
    ),
    "clicks": Advice(
        "data",
        "Clicks belong to what was shown",
        "Events do not arrive, arrive late, carry another id than the search's, or come from robots.",
        "Send the id that rank returned with every click, at once; what is not counted is listed under Left out.",
    ),
    "duplicate clicks": Advice(
        "data",
        "Every click is sent once",
        "A cached page shares its id among visitors, or the page sends each click twice.",
        "Do not cache what rank returned; look for two listeners on the same link.",
    ),
    "fallbacks": Advice(
        "data",
        "Visitors get what was drawn for them",
        "The store is slow, full or overloaded, or requests are not in order.",
        "Look at the reasons, and at the log of the service.",
    ),
    "effective clicks": Advice(
        "data",
        "Enough clicks carry the answer",
        "The trial is young, or a few clicks have most of the weight.",
        "Wait for more clicks.",
    ),
    "largest weight": Advice(
        "data",
        "No click counts for very many",
        "Some results are shown rarely, so that a click on them stands for many.",
        "Start a version with a larger hold-back or floor: they are shown more often then.",
    ),
    "clicks on what is shown": Advice(
        "visitors",
        "The trial costs visitors no clicks",
        "Mixed pages are worse than A's and B's own, and the click budget has not caught up with that yet.",
        "The budget corrects itself at the next refit. A lower loss, or a floor, gives more back.",
    ),
    "heaviest unit": Advice(
        "visitors",
        "No single visitor makes the answer",
        "A robot, a test script, or an account that many people share.",
        "If it is a robot, exclude it; rules in the configuration leave such visitors out from the start.",
    ),
    "pages with many clicks": Advice(
        "visitors",
        "No few pages make the answer",
        "Somebody clicks on everything that one ranker favours.",
        "Look at who does, and exclude them; rules in the configuration bound the clicks on one search.",
    ),
    "latency": Advice(
        "visitors",
        "Visitors do not wait for rank",
        "The machine is busy, or lists are long and all queries are new.",
        "Give the service a processor of its own, or send shorter lists.",
    ),
}


def explained(guardrail: Guardrail) -> Guardrail:
    """The guardrail with its group and statement; with cause and remedy where it warns or fails."""
    advice = ADVICE.get(guardrail.name)
    if advice is None:
        return guardrail
    told = {"group": advice.group, "title": advice.title}
    if guardrail.status in ("warn", "fail"):
        told |= {"cause": advice.cause, "remedy": advice.remedy}
    return guardrail.model_copy(update=told)
