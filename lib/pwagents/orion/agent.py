"""The Orion agent (Orion, 4.2): belief state -> messages -> a thought and one call -> action.

The belief state is S_t = (I, P_ctx,t, session history). The instruction and P_ctx,0 make the first message;
where a step changed the contextual profile, P_ctx,t is told with that step's observation. The same messages
are what the policy is trained on (:mod:`pwagents.orion.train`).

The policy composes its calls itself: no line of the prompt is written for one. Departures: the paper does not
print its prompt, so the words are ours; past purchases of the retrieved interest and of others are listed,
from which a recommendation takes its ids; one past review, whose tone a new one should have, stands in a
review task.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from pwagents.agents.messages import assistant, task_text, user
from pwagents.agents.replies import read_turn
from pwagents.embedding import Embedder
from pwagents.llm.chat import ChatModel, Message, Request, Tool
from pwagents.llm.fence import FENCE_NOTE, fence
from pwagents.profiles.contextual import Context, ContextualProfile, Purchase
from pwagents.profiles.global_micro import contextual_profiles, nearest_clusters
from pwagents.profiles.types import UserProfiles
from pwagents.schema import FUNCTION_OF, Action, Behavior, Benchmark, Split, Step, Task, Trajectory
from pwagents.shop.environment import BeliefState, tool_schemas

FUNCTIONS = tuple(sorted([*FUNCTION_OF.values(), "respond", "stop"]))  # in the order in which TRL lists tools

RULES = f"""\
You are the personal assistant of a customer of an online shop. Find what the customer wants, suggest what
suits them, or write their review, whichever they ask for. Think first, in <think></think>, then make one
call. The profile says what the customer is held to like and dislike here; what they said themselves counts
most. Where the request leaves open what would tell products apart, ask the customer with respond, one thing
at a time, and nothing that you know already. Call stop when the task is done.

{FENCE_NOTE}"""

PURCHASES = 16  # told of, at most; half of them of the retrieved interest where there are others
# Characters of a page, a review or an answer, at most: some 3,000 tokens, so that one page of a hundred
# thousand characters leaves room for an episode.
LONGEST = 12_000
_LISTED = re.compile(r"\n(?=\d+\. )")


class OrionAgent:
    """Lets a language model act on Orion's belief state.

    Args:
        model: the policy.
        shown: products of a result that the model is told about, at most.
        sampling: of the model's calls.
        sample: another number draws another reply to the same messages.
    """

    def __init__(
        self, model: ChatModel, shown: int = 10, sampling: Mapping[str, object] | None = None, sample: int = 0
    ):
        self.model, self.shown = model, shown
        self.options = {"sampling": dict(sampling or {"temperature": 0.0}), "sample": sample}

    def __call__(self, state: BeliefState) -> Action:
        messages = tuple(orion_messages(state, self.shown))
        return read_turn(self.model.reply(Request(messages=messages, tools=orion_tools(), **self.options)))


def orion_messages(state: BeliefState, shown: int = 10) -> list[Message]:
    """The belief state as a conversation: rules, the task with P_ctx,0, then each step."""
    # The task, P_ctx,0, and what else of the past the functions need.
    parts = [_shortened(task_text(state))]
    if state.context and (told := state.context.profile.describe()):
        parts.append(f"Profile:\n{fence(told)}")
    texts = [b.review.text for b in state.history if b.review.text.strip()]
    if state.product is None and state.context and state.context.purchases:
        rows = (f"{x.month} {x.title} | {x.category} | {x.asin}" for x in state.context.purchases)
        parts.append(f"Past purchases:\n{fence(chr(10).join(rows))}")
    if state.product is not None and texts:
        parts.append(f"An earlier review:\n{fence(_shortened(texts[-1]))}")
    messages = [{"role": "system", "content": RULES}, user("\n\n".join(parts))]
    for i, step in enumerate(state.session):
        # What the policy said: a thought and a call, or what it wrote in place of them.
        action = step.action
        turn = assistant(action.thought, action.extras)
        if action.problem:
            turn["content"] = action.thought or "(nothing)"
        else:
            name = re.sub(r"[^\w-]", "_", action.name, flags=re.ASCII)[:64] or "_"
            function = {"name": name, "arguments": json.dumps(action.arguments, ensure_ascii=False)}
            turn["tool_calls"] = [{"id": f"call{i:05}", "type": "function", "function": function}]
        messages += [turn, answer_message(i, step, shown)]
    return messages


def answer_message(i: int, step: Step, shown: int = 10) -> Message:
    """What came back: the observation, its first ``shown`` products fenced, and P_ctx,t where it changed."""
    text = _shortened(step.observation.text)
    if step.observation.products:
        text = fence("\n".join(_LISTED.split(text)[:shown]))
    if step.profile:
        text = f"{text}\n\nProfile:\n{fence(step.profile)}"
    if step.action.problem:
        return user(text)
    return {"role": "tool", "tool_call_id": f"call{i:05}", "content": text}


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [...]"


def belief_states(first: BeliefState, trajectory: Trajectory) -> list[BeliefState]:
    """Make S_t before each step of an episode and at its end, from the first one and what was told."""
    states = [first]
    for i, step in enumerate(trajectory.steps, start=1):
        profile = ContextualProfile.read(step.profile) if step.profile else states[-1].profile
        states.append(replace(first, session=trajectory.steps[:i], profile=profile))
    return states


@cache
def orion_tools() -> tuple[Tool, ...]:
    """The functions that Orion may call, as OpenAI tools; made once."""
    return tuple(tool_schemas(FUNCTIONS))


def contexts(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    split: Split,
    profiles: Mapping[str, UserProfiles],
    embedder: Embedder,
) -> dict[str, Context]:
    """What retrieval finds for each task, task_id -> context (Orion, 4.1): one batch of retrievals.

    Args:
        profiles: user_id -> profiles made from what lies before the user's first task of the split.
        embedder: the one that the clusters' centres were made with.
    """
    instructions, users = [t.instruction for t in tasks], [profiles[t.user_id] for t in tasks]
    near = nearest_clusters(instructions, users, embedder, 1)
    first = contextual_profiles(users, near)
    made = {}
    for task, profile, clusters, user_profiles in zip(tasks, first, near, users, strict=True):
        members = user_profiles.clusters[clusters[0].cluster].members if clusters else ()
        made[task.task_id] = Context(profile, purchases(benchmark, benchmark.history(task, split), members))
    return made


def purchases(
    benchmark: Benchmark, history: Sequence[Behavior], interest: Collection[int]
) -> tuple[Purchase, ...]:
    """List the last purchases of an interest and of all others, each product once, oldest first.

    Args:
        interest: positions in ``history``; of the rest as many are listed as :data:`PURCHASES` leaves room
            for, which is half of it or more.
    """
    latest = {behavior.parent_asin: i for i, behavior in enumerate(history)}.values()  # a product's last
    inside = sorted(i for i in latest if i in interest)
    outside = sorted(i for i in latest if i not in interest)
    inside = inside[-max(PURCHASES // 2, PURCHASES - len(outside)) :]
    rows = []
    for i in sorted([*inside, *outside[len(outside) - min(len(outside), PURCHASES - len(inside)) :]]):
        product = benchmark.products[history[i].parent_asin]
        month = datetime.fromtimestamp(history[i].timestamp / 1000, UTC).strftime("%Y-%m")
        rows.append(Purchase(product.parent_asin, product.title, product.category, month))
    return tuple(rows)
