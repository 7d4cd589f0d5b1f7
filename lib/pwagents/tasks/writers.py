"""Instructions rewritten from profiles and products, by templates or by a language model.

Two kinds: the usual instructions (PersonalWAB, Figures 12-14), and an ambiguous set that only a profile can
resolve (Orion, 4.3: inverse prompting). All wording is in ``writers.yaml``. Departures: third-party text is
fenced, word limits and sampling are ours (the papers do not print theirs), and a text that gives the target
away never becomes an instruction.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pwagents.data.instructions import write_instruction
from pwagents.llm.chat import ChatModel, Reply, Request
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.llm.replies import ask_twice
from pwagents.profiles.llm import messages_of
from pwagents.profiles.types import OTHER
from pwagents.schema import Behavior, Benchmark, Product, Task, TaskType, UserProfile
from pwagents.seeds import rng
from pwagents.shop.environment import full_text
from pwagents.words import gives_away, kind_of, read_yaml, section_of

_PROMPTS = read_yaml(__package__, "writers.yaml")
# Words, at most.
LIMITS: dict[TaskType, int] = {"search": 40, "recommend": 25, "review": 50}
AMBIGUOUS_LIMIT = 12
_SHARED = 10  # products of a kind, at least, for its name to be generic
_SAMPLING = {"temperature": 1.0, "max_tokens": 200}
_EXTRAS = {"low": 0, "medium": 1, "high": 3}  # phrases around the request, by interaction complexity


class Brief(NamedTuple):
    """The input of one instruction."""

    task: Task  # only its type and, for review tasks, its review are used
    product: Product  # the target
    profile: UserProfile | None  # the user's, if there is one
    history: tuple[Behavior, ...]  # the user's behaviors before the first task of the split, oldest first


# Writes an instruction for each brief, in order; none is empty.
InstructionWriter = Callable[[Sequence[Brief]], list[str]]


def with_instructions(
    benchmark: Benchmark, writer: InstructionWriter, profiles: Mapping[str, UserProfile]
) -> Benchmark:
    """Return the benchmark with other instructions; nothing else of its tasks changes.

    Facts about the old instructions do not hold for the new ones: in the synthetic world, the latent truth's
    ``kind``, ``stated``, ``in_history`` and ``in_head``.

    Args:
        profiles: user_id -> profile. It may be of the whole history, since an instruction is what the user
            says (PersonalWAB, 3.2).

    Raises:
        ValueError: the writer does not return one instruction for each task.
        InfrastructureError: the writer's language model cannot be reached.
    """
    written = {}
    for split, tasks in benchmark.tasks.items():
        briefs = [
            Brief(t, benchmark.products[t.target], profiles.get(t.user_id), benchmark.history(t, split))
            for t in tasks
        ]
        texts = zip(tasks, writer(briefs), strict=True)
        written[split] = tuple(task.model_copy(update={"instruction": text}) for task, text in texts)
    return replace(benchmark, tasks=written)


class OfflineInstructionWriter:
    """Writes :func:`pwagents.data.instructions.write_instruction`, with phrases that follow from the profile.

    The profile's focus aspect, diversity preference and tone give a phrase each; the interaction complexity
    decides how many are used (low: none, medium: one, high: all). Without a profile none is.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed

    def __call__(self, briefs: Sequence[Brief]) -> list[str]:
        return [self._write(brief) for brief in briefs]

    def _write(self, brief: Brief) -> str:
        task, profile = brief.task, brief.profile
        generator = rng(self.seed, "instruction", task.task_id)
        request = write_instruction(task.type, brief.product, task.review, brief.history, generator)
        if profile is None:
            return request
        offers = list(_phrases(task.type, profile))
        phrases = [offer[int(generator.integers(len(offer)))] for offer in offers]
        # As many phrases as the profile allows, then fewer, until the text fits.
        drafts, most = [request], _EXTRAS.get(profile.interaction_complexity.lower(), 1)
        for i in generator.permutation(len(phrases))[:most]:
            drafts.append(phrases[i].replace("{request}", drafts[-1]))  # no format(): a title may hold braces
        return next((text for text in drafts[:0:-1] if _fits(text, brief, LIMITS[task.type])), request)


class OfflineAmbiguousWriter:
    """Writes generic requests that only a profile can resolve: the offline form of Orion's ambiguous set.

    A search names only the kind of product if at least ten products are of that kind ("charger"), else the
    category's section. A recommendation and a review name nothing.
    """

    def __init__(self, products: Mapping[str, Product], seed: int = 0):
        self.seed = seed
        self._sizes = Counter(map(kind_of, products.values()))

    def __call__(self, briefs: Sequence[Brief]) -> list[str]:
        return [self._write(brief) for brief in briefs]

    def _write(self, brief: Brief) -> str:
        task, product = brief.task, brief.product
        generator = rng(self.seed, "ambiguous instruction", task.task_id)
        templates = _PROMPTS["offline"]["ambiguous"][task.type]
        templates = [templates[i] for i in generator.permutation(len(templates))]
        kind = kind_of(product)
        things = [kind] if self._sizes[kind] >= _SHARED else []
        things += [f"item from {section_of(product.category)}", "item"]
        drafts = (template.format(thing=thing) for thing in things for template in templates)
        draft = next((text for text in drafts if _fits(text, brief, AMBIGUOUS_LIMIT)), None)
        return draft or write_instruction(task.type, product, task.review, (), generator)


class LlmInstructionWriter:
    """Lets a language model write the instructions of search, recommend and review tasks.

    A reply that gives the target away, or is empty or too long, is sent back once with the problem; then
    ``fallback`` writes the instruction. If the model refuses, ``fallback`` writes it at once.

    Args:
        seed: chooses among the model's possible replies.

    Attributes:
        failures: "repaired" (replies usable at the second try), "unreadable" and "refused" (``fallback``
            wrote these).
    """

    situations = "instruction"  # of writers.yaml
    limits = LIMITS

    def __init__(self, model: ChatModel, fallback: InstructionWriter, seed: int = 0):
        self.model, self.fallback, self.seed, self.failures = model, fallback, seed, Counter[str]()

    def __call__(self, briefs: Sequence[Brief]) -> list[str]:
        """Write an instruction for each brief, in order.

        Raises:
            InfrastructureError: the model cannot be reached.
        """
        readers = [partial(self.read, brief) for brief in briefs]
        requests = [self.request(brief) for brief in briefs]
        texts = ask_twice(self.model, requests, readers, "write instructions", self.failures)
        written = iter(self.fallback([brief for brief, text in zip(briefs, texts, strict=True) if not text]))
        return [text or next(written) for text in texts]

    def read(self, brief: Brief, reply: Reply) -> str | None:
        """Return the instruction in a reply; None if the provider filtered it, as it would again.

        Raises:
            ValueError: the reply cannot be used; says why.
        """
        if reply.finish_reason == "content_filter":
            return None
        limit = self.limits[brief.task.type]
        text = " ".join(reply.text.split()).strip('"\u201c\u201d ')
        problems = {  # the first that holds counts
            "it was cut off at the length limit": reply.is_cut,
            "it is empty": not text,
            f"it has more than {limit} words": len(text.split()) > limit,
            "it gives away what must not be told": not _fits(text, brief, limit),
        }
        if problem := next((name for name, holds in problems.items() if holds), ""):
            raise ValueError(problem)
        return text

    def rules(self, brief: Brief) -> Iterator[str]:
        """Yield the rules for the user's traits; none for a value outside the options of Figure 11."""
        if profile := brief.profile:
            diversity, interaction = profile.diversity_preference, profile.interaction_complexity
            if brief.task.type != "review":
                yield _PROMPTS["diversity"].get(diversity.strip().lower(), "")
            yield _PROMPTS["interaction"].get(interaction.strip().lower(), "")
            yield from (_PROMPTS[trait] for trait in ("focus", "tone", "reference"))

    def request(self, brief: Brief) -> Request:
        """Write the request: user and product, in review tasks also the user's opinion."""
        task = brief.task
        limit = _PROMPTS["limit"].format(n=self.limits[task.type])
        rules = [rule for rule in (*self.rules(brief), *_PROMPTS["always"], limit) if rule]
        listed = "Rules:\n" + "\n".join(f"- {rule}" for rule in rules)
        system = [_PROMPTS["role"], FENCE_NOTE, _PROMPTS[self.situations][task.type], listed]
        facts = brief.profile.model_dump(by_alias=True).items() if brief.profile else ()
        parts = {
            "Your profile": "\n".join(f"{name}: {value}" for name, value in facts),
            "The product": full_text(brief.product),
        }
        if task.type == "review":
            review = task.review
            parts["Your opinion"] = f"{review.rating:g} of 5 stars. {review.title}\n{review.text}"
        user = [f"{what}:\n{fence(text)}" for what, text in parts.items() if text]
        messages = messages_of("\n\n".join(system), "\n\n".join(user))
        return Request(messages=messages, sampling=_SAMPLING, sample=self.seed)


class LlmAmbiguousWriter(LlmInstructionWriter):
    """Lets a language model write instructions that only the profile can resolve (Orion, 4.3).

    Inverse prompting: from user and product back to the user's first few words. Replies are checked as by
    :class:`LlmInstructionWriter`, with at most 12 words.
    """

    situations = "ambiguous"
    limits = dict.fromkeys(LIMITS, AMBIGUOUS_LIMIT)

    def rules(self, brief: Brief) -> Iterator[str]:
        """Yield the rules: the user's tone, and that no attribute is named."""
        if brief.profile:
            yield _PROMPTS["tone"]
        yield _PROMPTS["no_attribute"]


def _fits(text: str, brief: Brief, limit: int) -> bool:
    """Return whether a text has at most ``limit`` words and does not give the target or the review away."""
    is_short = 0 < len(text.split()) <= limit
    return is_short and not gives_away(text, brief.task.type, brief.product, brief.task.review)


def _phrases(task_type: TaskType, profile: UserProfile) -> Iterator[list[str]]:
    """Yield the phrases that each trait of the profile offers around the request."""
    texts, is_review = _PROMPTS["offline"], task_type == "review"
    aspects = [aspect.strip().lower() for aspect in profile.focus_aspect.split(",")]
    # A profile's "Other" means unknown, so it makes no phrase.
    if focus := " and ".join(aspect for aspect in aspects[:2] if aspect and aspect != OTHER.lower()):
        focusing = texts["review_focus" if is_review else "focus"]
        yield [phrase.replace("{focus}", focus) for phrase in focusing]
    if not is_review and (phrases := texts["diversity"].get(profile.diversity_preference.lower())):
        yield phrases
    if any(word in profile.tone_and_style.lower() for word in texts["warm_words"].split()):
        yield texts["greetings"]
