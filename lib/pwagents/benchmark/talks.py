"""A conversation to look at: an agent that goes by rules asks a user who answers by rules."""

from collections.abc import Sequence

from pwagents.agents.chat_agent import Setup
from pwagents.agents.methods import METHODS
from pwagents.agents.plain import FunctionClassifier, OfflinePolicy
from pwagents.embedding import Embedder
from pwagents.schema import Benchmark, Task, Trajectory
from pwagents.users.rules import RuleUser
from pwagents.web.environment import WebEnvironment, run_episode
from pwagents.web.functions import Shop
from pwagents.web.search import SearchEngine


def longest_talk(
    benchmark: Benchmark, engine: SearchEngine, tasks: Sequence[Task], seed: int
) -> tuple[Task, Trajectory]:
    """The longest conversation about any of ``tasks`` (test tasks), and its task. Review tasks are left out
    where there are others.

    The shop recommends nothing: no recommender is trained for this.
    """
    from pwagents.web.recommenders_by_time import NothingKnown  # brings torch

    shop = Shop(benchmark, engine, NothingKnown(), Embedder(), "compact")
    policy = OfflinePolicy(FunctionClassifier(benchmark.tasks["train"]))
    agent = METHODS["No memory"](Setup(policy, benchmark.products))
    environment = WebEnvironment(shop, "multi_turn", RuleUser(benchmark.products, benchmark.profiles, seed))
    talks = [
        (task, run_episode(environment, task, benchmark.history(task, "test"), agent))
        for task in [task for task in tasks if task.type != "review"] or tasks
    ]
    return max(talks, key=lambda talk: len(talk[1].steps))
