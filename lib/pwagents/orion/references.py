"""What Orion's policies are compared with: chance, the instruction or its content words alone, the teacher
with fewer and more questions, and who knows the target.

None of them is a bound: a policy may pass its teacher, and do worse than chance.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

from pwagents.agents.offline import words
from pwagents.orion.agent import FUNCTIONS
from pwagents.orion.experiment import OrionRuns
from pwagents.orion.study import Study, role_facts
from pwagents.orion.teacher import is_result, make_teacher
from pwagents.profiles.catalogue import WORD_LISTS, Catalogue
from pwagents.schema import FUNCTION_OF, Action, Task
from pwagents.seeds import rng
from pwagents.shop.environment import Agent, BeliefState
from pwagents.shop.score import rank_accuracy
from pwagents.shop.search import content_query
from pwagents.store import Episode

RANDOM, TEACHER, KNOWS = "Random", "Teacher", "Knows the target"
INSTRUCTION, CONTENT = "Instruction alone", "Content words alone"
CODE = ("orion.experiment", "orion.references", "orion.teacher")
WORDS = 4  # of a random query or review
IDS = 3  # of a random recommendation


def play_references(runs: OrionRuns, questions: int) -> dict[str, list[Episode]]:
    """Let those play that nobody trained, by name; the teacher by rules asks at most so many questions."""
    study = runs.study
    # Made when the first episode is played: those that are stored need neither.
    chance = cache(lambda: RandomAgent(study.catalogue, study.seed))
    teacher = cache(lambda: make_teacher(study, 0, questions))
    agents: dict[str, Callable[[Task], Agent]] = {
        RANDOM: lambda _: chance(),
        INSTRUCTION: lambda _: partial(search_instruction, str),
        CONTENT: lambda _: partial(search_instruction, content_query),
        TEACHER: lambda _: teacher(),
        KNOWS: lambda task: partial(know_all, study, task),
    }
    facts = {"teacher": role_facts(study.settings.players, "teacher"), "questions": questions}
    return {name: runs.agent(name, agent_of, facts, CODE) for name, agent_of in agents.items()}


def play_everyone(runs: OrionRuns, policies: Mapping[str, Path], questions: int) -> dict[str, list[Episode]]:
    """Let references play and, between them, policies; each policy greedily, then ", sampled"."""
    references = play_references(runs, questions)
    records = {name: references[name] for name in (RANDOM, INSTRUCTION, CONTENT)}
    for name, folder in policies.items():
        records[name] = runs.policy(name, folder)
        records[f"{name}, sampled"] = runs.policy(f"{name}, sampled", folder, sampled=True)
    return records | {name: references[name] for name in (TEACHER, KNOWS)}


class RandomAgent:
    """Well-formed calls at random: a question about any attribute, a search for any words of the shop, a
    recommendation by any products, a review of any words, a stop.

    Args:
        seed: with user, instruction and number of the step, it decides each call.
    """

    def __init__(self, catalogue: Catalogue, seed: int):
        self.seed, self.asins = seed, sorted(catalogue.products)
        titles = (product.title for product in catalogue.products.values())
        self.words = sorted({word for title in titles for word in words(title)})
        self.attributes = sorted(WORD_LISTS["attributes"])

    def __call__(self, state: BeliefState) -> Action:
        generator = rng(self.seed, "random agent", state.user_id, state.instruction, str(len(state.session)))
        name = FUNCTIONS[generator.integers(len(FUNCTIONS))]
        text = " ".join(generator.choice(self.words, WORDS).tolist())
        asins = generator.choice(self.asins, IDS).tolist()
        question = f"Which {generator.choice(self.attributes)} would you like?"
        arguments = {
            FUNCTION_OF["search"]: {"query": text},
            FUNCTION_OF["recommend"]: {"product_sequence": asins},
            FUNCTION_OF["review"]: {"review": text},
            "respond": {"content": question},
        }
        return Action(name=name, arguments=arguments.get(name, {}))


def search_instruction(shorten: Callable[[str], str], state: BeliefState) -> Action:
    """Search for what ``shorten`` leaves of the instruction (for a review: publish it), ask nothing, stop."""
    if any(map(is_result, state.session)):
        return Action(name="stop")
    text = shorten(state.instruction)
    if state.product is not None:
        return Action(name=FUNCTION_OF["review"], arguments={"review": text})
    return Action(name=FUNCTION_OF["search"], arguments={"query": text})


def know_all(study: Study, task: Task, state: BeliefState) -> Action:
    """Search for the target's title, publish the real review, recommend by what ranks the target highest: one
    product of the past, all of them, or the target itself."""
    if any(map(is_result, state.session)):
        return Action(name="stop")
    name = FUNCTION_OF[task.type]
    if task.type == "search":
        return Action(name=name, arguments={"query": study.benchmark.products[task.target].title})
    if task.type == "review":
        return Action(name=name, arguments={"review": task.review.text})
    recommend = study.start(task).recommender.recommend
    past = [behavior.parent_asin for behavior in state.history]
    sequences = [past, [task.target], *([asin] for asin in dict.fromkeys(past))]
    best = max(sequences, key=lambda sequence: rank_accuracy(recommend(sequence), task.target))
    return Action(name=name, arguments={"product_sequence": best})
