"""Instructions written by a language model: PersonalWAB's Figures 12-14, and Orion's ambiguous set (4.3).

The prompts are in ``prompts.yaml``. Departures: foreign text is fenced, word limits and sampling are ours
(the papers do not print theirs), and what gives the target away never becomes an instruction.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from pwagents.llm.chat import ChatModel, Reply, Request, ask_all
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.project import read_yaml
from pwagents.schema import TaskType
from pwagents.tasks.briefs import Brief, InstructionWriter
from pwagents.tasks.offline import AMBIGUOUS_LIMIT, LIMITS, fits
from pwagents.web.functions import full_text

SAMPLING = {"temperature": 1.0, "max_tokens": 200}


class LlmInstructionWriter:
    """Lets a language model write the instructions of search, recommend and review tasks.

    A reply that gives the target away, or is empty or too long, is asked for once more; then ``fallback``
    writes the instruction. It does so at once where the model refuses.

    Args:
        fallback: :class:`pwagents.tasks.offline.OfflineInstructionWriter`, for instance.
        seed: chooses among the model's possible replies.

    Attributes:
        counts: "written" (by the model), "offline" (by ``fallback``), and of the replies that were turned
            down: "leak", "too long", "empty", "refused".
    """

    situations = "instruction"  # of prompts.yaml

    def __init__(self, model: ChatModel, fallback: InstructionWriter, seed: int = 0):
        self.model, self.fallback, self.seed = model, fallback, seed
        self.counts: Counter[str] = Counter()

    def __call__(self, briefs: Sequence[Brief]) -> list[str]:
        """An instruction for each brief, in order.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        texts: dict[int, str] = {}
        left = list(range(len(briefs)))
        for attempt in range(2):
            requests = [self.request(briefs[i], attempt) for i in left]
            replies = ask_all(self.model, requests, "write instructions")
            asked = list(zip(left, replies, strict=True))
            texts |= {i: text for i, reply in asked if (text := self._accepted(reply, briefs[i]))}
            left = [i for i, reply in asked if i not in texts and not _is_refused(reply)]
        missing = [i for i in range(len(briefs)) if i not in texts]
        self.counts += Counter(written=len(texts), offline=len(missing))
        texts |= zip(missing, self.fallback([briefs[i] for i in missing]), strict=True)
        return [texts[i] for i in range(len(briefs))]

    def limit(self, task_type: TaskType) -> int:
        """The most words of an instruction."""
        return LIMITS[task_type]

    def rules(self, brief: Brief) -> Iterator[str]:
        """The rules of the user's traits; a value outside the options of Figure 11 makes none."""
        if profile := brief.profile:
            diversity, interaction = profile.diversity_preference, profile.interaction_complexity
            if brief.task.type != "review":
                yield prompts()["diversity"].get(diversity.strip().lower(), "")
            yield prompts()["interaction"].get(interaction.strip().lower(), "")
            yield from (prompts()[trait] for trait in ("focus", "tone", "reference"))

    def request(self, brief: Brief, attempt: int = 0) -> Request:
        """What the model is asked; attempt 1 asks for another reply to the same."""
        limit = prompts()["limit"].format(n=self.limit(brief.task.type))
        rules = [rule for rule in (*self.rules(brief), *prompts()["always"], limit) if rule]
        situation = prompts()[self.situations][brief.task.type]
        listed = "Rules:\n" + "\n".join(f"- {rule}" for rule in rules)
        system = "\n\n".join([prompts()["role"], FENCE_NOTE, situation, listed])
        messages = (
            {"role": "system", "content": system},
            {"role": "user", "content": "\n\n".join(_knowledge(brief))},
        )
        return Request(messages=messages, sampling=SAMPLING, sample=2 * self.seed + attempt)

    def _accepted(self, reply: Reply | None, brief: Brief) -> str:
        """The instruction in a reply; empty, and counted, where there is none that will do."""
        limit = self.limit(brief.task.type)
        text = " ".join(reply.text.split()).strip('"\u201c\u201d ') if reply else ""
        if _is_refused(reply):
            self.counts["refused"] += 1
        elif not text:
            self.counts["empty"] += 1
        elif reply.finish_reason == "length" or len(text.split()) > limit:
            self.counts["too long"] += 1
        elif not fits(text, brief, limit):
            self.counts["leak"] += 1
        else:
            return text
        return ""


class LlmAmbiguousWriter(LlmInstructionWriter):
    """Lets a language model write instructions that only the profile can resolve (Orion, 4.3).

    Inverse prompting: from user and product back to the few words that this user would begin with. Checked as
    :class:`LlmInstructionWriter` does, with at most 12 words.
    """

    situations = "ambiguous"

    def limit(self, task_type: TaskType) -> int:
        return AMBIGUOUS_LIMIT

    def rules(self, brief: Brief) -> Iterator[str]:
        if brief.profile:
            yield prompts()["tone"]
        yield prompts()["no_attribute"]


def prompts() -> dict:
    """The texts of ``prompts.yaml``."""
    return read_yaml(__package__, "prompts.yaml")


def _is_refused(reply: Reply | None) -> bool:
    return reply is None or reply.finish_reason == "content_filter"


def _knowledge(brief: Brief) -> Iterator[str]:
    """Who the customer is and what the request is about; an opinion in review tasks alone."""
    if brief.profile:
        facts = brief.profile.model_dump(by_alias=True)
        yield "Your profile:\n" + fence("\n".join(f"{name}: {value}" for name, value in facts.items()))
    yield f"The product:\n{fence(full_text(brief.product))}"
    if brief.task.type == "review":
        review = brief.task.review
        yield "Your opinion:\n" + fence(f"{review.rating:g} of 5 stars. {review.title}\n{review.text}")
