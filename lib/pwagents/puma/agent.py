"""The PUMA agent (PersonalWAB, 5): which function, then its parameter, each by a fine-tuned model.

Step 1 completes a prompt of the instruction with the name of a function. Step 2 completes a prompt of
instruction, task-specific memory and function with the bare parameter: a query, a review, or ids. Both are
plain text, and greedy (``PUMA/test_llama.py``). Both are single-turn, so all prompts of a set of tasks are
known beforehand, and :meth:`PumaAgent.act` answers many at once.

Three things go by the protocol. *Published*: the memory is of the function that the task really asks for,
also at the test, where step 1 names another one; a review's product is left out, as in ``test_llama.py``
(the live agent of the repository tells it); and ids go through a set, which loses their order. *Leak-free*:
the memory is of the function that step 1 names, the product is told, and ids keep their order.

Departure: a reply of step 1 that names no function is a step lost (``test.py`` reads it as a review).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwagents.agents.offline import CODE as OFFLINE
from pwagents.lm.complete import complete
from pwagents.puma.memory import RECOMMEND, REVIEW, SEARCH, Method, Recall
from pwagents.schema import FUNCTION_OF, Action, Protocol
from pwagents.seeds import rng
from pwagents.shop.environment import BeliefState

if TYPE_CHECKING:
    from pwagents.puma.study import Study
    from pwagents.puma.train import Trained

# The modules that decide a call, for keys.
CODE = (
    *OFFLINE,
    *(f"agents.{name}" for name in ("messages", "published")),
    *(f"llm.{name}" for name in ("chat", "fence", "folder", "parts", "prompts")),
    *(f"lm.{name}" for name in ("complete", "load")),
    "profiles.clusters",
    "words",
    *(f"puma.{name}" for name in ("agent", "labels", "memory")),
)

NAME_TOKENS = 32  # of a function's name, at most (``PUMA/scripts/generate_function.sh``)
ARGUMENT = {SEARCH: "query", RECOMMEND: "product_sequence", REVIEW: "review"}


def read_parameter(function: str, text: str, recall: Recall, method: Method, protocol: Protocol) -> Action:
    """Read what the model of step 2 wrote as a call.

    Unknown ids stay: the recommender passes over them, and of more than 30 known ones it takes the last 30.
    """
    if function != RECOMMEND:
        return Action(name=function, arguments={ARGUMENT[function]: text.strip()})
    ids = [each.strip() for each in text.split(",")]
    if method.ids == "number":
        id_of = {str(number): asin for number, asin in enumerate(recall.ids, start=1)}
        ids = [id_of.get(each, each) for each in ids]
    if protocol == "published":
        # The order of the published set depends on Python's hash seed; here on the text alone.
        ids = sorted(set(ids))
        ids = [ids[i] for i in rng(0, "order of a set", text).permutation(len(ids))]
    return Action(name=function, arguments={ARGUMENT[function]: ids})


def read_function(text: str) -> str:
    """Read the function that step 1 names; empty where it names none or several."""
    written = "".join(text.split())  # small tokenizers put spaces around underscores
    named = [function for function in FUNCTION_OF.values() if function in written]
    return named[0] if len(named) == 1 else ""


@dataclass(frozen=True)
class PumaAgent:
    """Lets one trained model name the function and another one write its parameter.

    Called with single states it keeps both models loaded; :meth:`act` loads them for all of its states.

    Args:
        study: whose memory, prompts and settings of decoding it has.
    """

    study: "Study"
    method: Method
    trained: "Trained"
    protocol: Protocol
    _loaded: dict[Path, Any] = field(default_factory=dict, compare=False)

    def __call__(self, state: BeliefState) -> Action:
        return self.act([state], loaded=self._loaded)[0]

    def act(
        self, states: Sequence[BeliefState], asked: Sequence[str] = (), loaded: dict | None = None
    ) -> list[Action]:
        """Answer each state with one call, computed in batches. A reply that cannot be used is a step lost.

        Args:
            asked: the functions that the tasks really ask for; the memory's type under the published
                protocol. Where they are not given, the memory is of the function that step 1 names.
            loaded: of :func:`pwagents.lm.complete.complete`.
        """
        memory, forms, config = self.study.memory, self.study.prompts, self.study.settings.study
        memory.prepare(states)
        prompts = [forms.identify(state.instruction) for state in states]
        options: dict[str, Any] = {"batch_size": config.batch_size, "loaded": loaded}
        named = complete(self.trained.identifier, prompts, max_new_tokens=NAME_TOKENS, **options)
        functions = [read_function(text) for (text,) in named]
        of_memory = asked if self.protocol == "published" and asked else functions

        # Step 2, where step 1 names a function.
        places = [i for i, function in enumerate(functions) if function]
        recalls = {i: memory.recall(states[i], of_memory[i], self.method) for i in places}
        told = self.protocol == "leak_free"
        prompt_of = {
            i: forms.parameter(states[i], functions[i], recalls[i], with_product=told) for i in places
        }
        # Prompts of one function and of like length share a batch, which takes as long as its longest.
        places.sort(key=lambda i: (functions[i], len(prompt_of[i])))
        prompts = [prompt_of[i] for i in places]
        written = complete(self.trained.writer, prompts, max_new_tokens=config.max_new_tokens, **options)
        problem = f"name one of {', '.join(FUNCTION_OF.values())}"
        lost = {"problem": problem, "problem_kind": "unknown_function"}
        actions = [Action(thought=text, **lost) for (text,) in named]
        for i, (text,) in zip(places, written, strict=True):
            actions[i] = read_parameter(functions[i], text, recalls[i], self.method, self.protocol)
        return actions
