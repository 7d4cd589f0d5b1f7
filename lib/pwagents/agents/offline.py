"""The offline policy: what stands in for a language model, in every method, without a download or a key.

It sees what the method lets an agent see (the belief state, what the memory recalls) and does what the method
allows, and nothing else: neither the method's name nor its prompt reaches it. So methods differ only by their
memory and their actions.
"""

from collections.abc import Callable

from pwagents.agents.memory import Entry
from pwagents.agents.plain import plain_arguments, words
from pwagents.schema import Action
from pwagents.web.episode import BeliefState
from pwagents.web.functions import FUNCTION_OF

# What it can ask about, most telling first; all of it stands in the text that is searched.
ATTRIBUTES = ("brand", "color", "material")
TRIES = 3
# Besides the stop words, what an answer holds that describes no product.
_SAYS_NOTHING = """
add ahead already answers best brand bring came care carry close clue color content disappointed don done
either enough exactly finally fine good great happy idea isn just know leave let like likes looking looks
love material matter matters mean mention mind new oh okay perfect picture pity please prefer preferably
preference product really right said satisfied say sorry stop sure thank thanks think told touch trust try
usually want way wish worth yes yet
"""


class OfflinePolicy:
    """Acts by the rules of :func:`pwagents.agents.plain.plain_arguments`, talks where it may, then stops.

    Before a search it asks about the first of ``ATTRIBUTES`` that the instruction leaves open. After each try
    it asks whether the result is right, and tries again, ``TRIES`` times in all, as long as the answer brings
    new words. What was answered joins the query, and of what the memory recalls, that comes first which the
    answers speak of.

    Args:
        identify: instruction -> the function it asks for. Not asked where the method allows only one.
    """

    def __init__(self, identify: Callable[[str], str]):
        self.identify = identify

    def act(self, state: BeliefState, entries: list[Entry], allowed: tuple[str, ...]) -> Action:
        """The next call.

        Args:
            entries: what the method's memory recalls.
            allowed: the functions the method may call.
        """
        possible = [function for function in FUNCTION_OF.values() if function in allowed]
        function = possible[0] if len(possible) == 1 else self.identify(state.instruction)
        tries = [i for i, step in enumerate(state.session) if step.action.name in possible]
        question = _question(state, entries, function, len(tries)) if "respond" in allowed else ""
        if question:
            return Action(name="respond", arguments={"content": question})
        if tries and "stop" in allowed and not _answers(state, since=tries[-1]):
            return Action(name="stop")
        told = _answers(state)
        arguments = plain_arguments(
            function, " ".join([state.instruction, *told]), _spoken_of_first(entries, told)
        )
        return Action(name=function, arguments=arguments)


def _question(state: BeliefState, entries: list[Entry], function: str, tries: int) -> str:
    """What to ask now; empty for nothing."""
    if tries == 0:
        attribute = _open_attribute(state.instruction, entries)
        asks = function == "search_product_by_query" and attribute and not state.session
        return f"Which {attribute} would you like?" if asks else ""
    asked = state.session[-1].action.name == "respond"
    return "Is this what you had in mind?" if tries < TRIES and not asked else ""


def _open_attribute(instruction: str, entries: list[Entry]) -> str | None:
    """The first attribute that the instruction does not name, nor (for the brand) a remembered value of."""
    said = instruction.lower()
    named = {attribute for attribute in ATTRIBUTES if attribute in said}
    if any((entry.get("store") or "\n").lower() in said for entry in entries):
        named.add("brand")
    return next((attribute for attribute in ATTRIBUTES if attribute not in named), None)


def _answers(state: BeliefState, since: int = -1) -> list[str]:
    """The words of the user's answers that may describe a product and were not said before, in order.

    ``since``: only words that came up after this step.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    known = {*ENGLISH_STOP_WORDS, *words(_SAYS_NOTHING), *words(state.instruction)}
    new: dict[str, int] = {}
    for i, step in enumerate(state.session):
        if step.action.name == "respond" and not step.error:
            for word in words(step.observation.text):
                if word not in known:
                    new.setdefault(word, i)
    return [word for word, i in new.items() if i > since]


def _spoken_of_first(entries: list[Entry], told: list[str]) -> list[Entry]:
    """The entries, those first that hold the most of the ``told`` words."""

    def shared(entry: Entry) -> int:
        return len(set(told).intersection(words(" ".join(map(str, entry.values())))))

    return sorted(entries, key=lambda entry: -shared(entry)) if told else entries
