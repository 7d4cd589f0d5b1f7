"""InteRecAgent (PersonalWAB, A.2): what a user likes, dislikes and expects, kept from task to task."""

import json
from typing import Any

from pwagents.agents import published
from pwagents.agents.chat import ONLY_MULTI_TURN, ChatAgent, Setup
from pwagents.agents.memory import Entry, memory_entry
from pwagents.agents.messages import transcript, write_entries
from pwagents.agents.offline import OfflinePolicy
from pwagents.agents.replies import parse_arguments
from pwagents.errors import NotEvaluableError
from pwagents.llm.fence import fence
from pwagents.llm.prompts import fill
from pwagents.schema import Behavior, Trajectory, Usage
from pwagents.shop.environment import BeliefState, Environment

# like, dislike: product ids; expect: what the user hopes for; unread: replies about them without sense.
Profile = dict[str, Any]
_PARTS = ("like", "dislike", "expect")
EXPECTATIONS = 30  # the latest so many are kept (published code)
FIRST_BEHAVIORS = 200  # at most, that the first profile is made from (published code)

ENTRY = "<TITLE> (id <PARENT_ASIN>, <MAIN_CATEGORY>): <RATING> stars. <TEXT>\n"
FIRST = """\
From what a customer bought and wrote, tell which products they clearly like and which they clearly dislike;
leave the others out. Reply with a JSON object and nothing else: {"like": [ids], "dislike": [ids]}

{history}"""
UPDATE = """\
Read how a customer and an assistant talked, and tell what it shows of the customer's taste. Reply with a JSON
object and nothing else: {"like": [ids of products they like], "dislike": [ids of products they do not like],
"expect": [names or kinds of things they hope to find]}. Leave a list empty where nothing was said.

{conversation}"""


class InteRecAgent(ChatAgent):
    """Function calling with the latest behaviors and the user's profile, which :func:`play_interec` keeps.

    In our words calls about the profile are made at temperature 0, as a user. Departure from the published
    code: its sets lose the order of what they hold; here the order is that in which it came.
    """

    rules = ONLY_MULTI_TURN
    published_rules = {"multi_turn": "INTEREC_PROMPT"}  # noqa: RUF012
    strategy, entry_form = "last", ENTRY
    published_form, published_memory = "INTEREC_MEMORY_PROMPT", "interecagent"

    def __init__(self, setup: Setup, profile: Profile | None = None):
        super().__init__(setup)
        self.profile = {"like": [], "dislike": [], "expect": [], "unread": 0} | (profile or {})

    def memory_text(self, entries: list[Entry]) -> str:
        if self.setup.prompts:
            lists = [str(self.profile[part]) for part in _PARTS]
            return published.memory_text(self, entries, self.published_memory, *lists)
        profile = fence("\n".join(f"{part}: {', '.join(self.profile[part]) or '-'}" for part in _PARTS))
        memory = super().memory_text(entries)
        return f"{memory}\n\nWhat the customer likes, dislikes and expects:\n{profile}".strip()


def play_interec(
    setup: Setup, environment: Environment, profile: Profile, first: tuple[Behavior, ...] | None = None
) -> tuple[Trajectory, Profile]:
    """Play a task with the user's profile, and return the episode and the profile after it.

    Calls about the profile count to the last step's usage.

    Args:
        environment: in which the task has begun.
        first: what an empty profile is first made from, by default what the agent sees of the user's past
            (the paper's A.3 adds the train tasks).
    """
    before = Usage()
    if not profile:
        profile, before = first_profile(setup, environment.state.history if first is None else first)
    agent = InteRecAgent(setup, profile)
    trajectory = environment.play(agent)
    profile, after = update(agent, environment.state)
    if agent.offline or not trajectory.steps:
        return trajectory, profile
    # Calls about the profile belong to no step; the last one bears them, so that totals are right.
    *earlier, last = trajectory.steps
    action = last.action.model_copy(update={"usage": before + after + (last.action.usage or Usage())})
    steps = (*earlier, last.model_copy(update={"action": action}))
    return trajectory.model_copy(update={"steps": steps}), profile


def first_profile(setup: Setup, history: tuple[Behavior, ...]) -> tuple[Profile, Usage]:
    """Return likes and dislikes in past behaviors, by the model; offline by ratings: 4 and up, 2 and down."""
    profile: Profile = {"like": [], "dislike": [], "expect": [], "unread": 0}
    entries = [memory_entry(behavior, setup.products) for behavior in history[: -FIRST_BEHAVIORS - 1 : -1]]
    if isinstance(setup.model, OfflinePolicy) or not entries:
        liked = [entry["parent_asin"] for entry in entries if entry["rating"] >= 4]
        disliked = [entry["parent_asin"] for entry in entries if entry["rating"] <= 2]
        return merge(profile, {"like": liked, "dislike": disliked}), Usage()
    prompt = fill(FIRST, {"{history}": fence(write_entries(ENTRY, entries, setup.products))})
    if setup.prompts:
        written = published.first_history(setup, entries[::-1])
        prompt = fill(setup.prompts["USER_PROFILE_PROMPT"], {"{History}": written})
    return _ask(setup, profile, prompt, temperature=0.0, max_tokens=5000)  # the published script's


def update(agent: InteRecAgent, state: BeliefState) -> tuple[Profile, Usage]:
    """Return the profile after the task that ended in ``state``; offline by what the user said."""
    if agent.offline:
        answers = [step.observation.text for step in state.session if step.is_talk]
        return merge(agent.profile, {"expect": answers}), Usage()
    prompts = agent.setup.prompts
    talk = (published.transcript if prompts else transcript)(agent.messages(state)[1:])
    form = prompts.get("INTEREC_UPDATE_MEM_PROMPT", UPDATE)
    return _ask(agent.setup, agent.profile, fill(form, {"{conversation}": talk}))


def merge(profile: Profile, news: Profile) -> Profile:
    """Return a profile with what is new: the latest word on a product counts, as in the published code."""
    like, dislike = news.get("like", []), news.get("dislike", [])
    still_liked = [asin for asin in profile["like"] if asin not in dislike]
    still_disliked = [asin for asin in profile["dislike"] if asin not in like]
    expect = list(dict.fromkeys([*profile["expect"], *news.get("expect", [])]))
    return profile | {
        "like": list(dict.fromkeys([*still_liked, *like])),
        "dislike": list(dict.fromkeys([*still_disliked, *dislike])),
        "expect": expect[-EXPECTATIONS:],
    }


def _ask(setup: Setup, profile: Profile, prompt: str, **sampling: Any) -> tuple[Profile, Usage]:
    """Return the profile with what the model says of the user; a refusal or nonsense is only counted."""
    unread = profile | {"unread": profile["unread"] + 1}
    try:
        reply = setup.answer(prompt, **sampling)
    except NotEvaluableError:
        return unread, Usage()
    try:
        if reply.is_cut:
            raise ValueError("half a reply")
        start = reply.text.index("{")
        _, end = json.JSONDecoder().raw_decode(reply.text, start)  # what stands around it does not matter
        news, mistake = parse_arguments(reply.text[start:end])
    except (ValueError, RecursionError):
        news, mistake = {}, "no JSON"
    # Each part is a list of texts, or left out.
    lists = [news.get(part, []) for part in _PARTS]
    are_lists = all(isinstance(items, list) and all(isinstance(i, str) for i in items) for items in lists)
    if mistake or not are_lists:
        return unread, reply.usage
    return merge(profile, news), reply.usage
