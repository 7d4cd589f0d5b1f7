"""The plain agent, the one that every method has to beat: with each memory, in this world and in others.

In the embedded world four targets of ten were bought by their user before, on real Amazon reviews hardly any.
What memory gains is therefore told apart by whether the target was bought before, and measured once more in a
world in which nothing is, and in worlds of other seeds.
"""

from collections.abc import Mapping

import pandas as pd

from pwagents.agents.memory import Memory, Strategy, embed_behaviors
from pwagents.agents.offline import RuleAgent
from pwagents.notebook import Run
from pwagents.results.metrics import GRADER
from pwagents.results.statistics import summarise
from pwagents.results.tables import recommender_name
from pwagents.schema import TASK_TYPES, Benchmark, Protocol, Task, Trajectory
from pwagents.settings import BenchmarkNotebook
from pwagents.shop.environment import run_episode
from pwagents.store import Episode
from pwagents_old.benchmark.analyses_03 import frame_of, gains_of_memory
from pwagents_old.benchmark.study import Study

NO_MEMORY = "Plain, no memory"
# The plain agent with each memory (PersonalWAB, 5.1 and 6), as tables call it.
PLAIN: dict[str, Strategy] = {
    NO_MEMORY: "none",
    "Plain, random memory": "random",
    "Plain, last memory": "last",
    "Plain, relevant memory": "relevant",
    "Plain, task-specific memory": "task_specific",
}
BEFORE, NEW = "bought before", "new"
# The code that decides an episode.
_PLAYED = ("agents", "web", "embedding", "schema", "seeds", "benchmark/study", "benchmark/plain")


def play_plain(study: Study, protocol: Protocol) -> dict[str, list[Episode]]:
    """Play the plain agent with each memory of :data:`PLAIN` on all tasks of a study, single-turn."""
    settings, roles, runs = study.settings, study.roles, {}
    length = settings.play.memory_length
    if not settings.stored_runs_only:
        # In one go, so that no episode waits for the model.
        embed_behaviors(study.benchmark, roles.embedder, [task.instruction for task in study.tasks])
    facts = {"track": "single_turn", "protocol": protocol, "memory_length": length}
    params = study.params(*_PLAYED, **facts, **study.shop.facts(protocol))
    for name, strategy in PLAIN.items():
        memory = Memory(strategy, study.benchmark.products, roles.embedder, length, settings.seed)
        agent = RuleAgent(roles.classifier, memory)

        def solve(task: Task, agent: RuleAgent = agent) -> Trajectory:
            return run_episode(study.shop, task, agent, protocol=protocol)

        fields = {"method": name, "model": "none", "params": params}
        runs[name] = study.run(study.tasks, solve, "03_single_turn.jsonl", **fields)
    return runs


def plain_note(study: Study, protocol: Protocol, references: pd.DataFrame) -> str:
    """Say what stands below a table of the plain agent and its references."""
    covered = references.loc[references["type"] == "review", "method"].value_counts()
    recommender = recommender_name(study.shop, study.settings.shop.recommender.loss, protocol)
    note = (
        f"Means, 95% intervals clustered by user. Source {study.settings.data.source}, "
        f"{len(study.tasks):,} test tasks, no language model. 'Same product' covers the "
        f"{covered.get('same product', 0):,} of {covered.get('oracle', 0):,} review tasks whose product "
        "somebody else reviewed. A dash: the row has no such value. "
        f"Recommender: {recommender}. Grader: {GRADER}."
    )
    if protocol == "leak_free":
        return note
    unfair = "a recommender that saw the future may pass the oracle"
    return f"{note} References are those of the leak-free protocol; {unfair}."


def play_world(
    settings: BenchmarkNotebook, run: Run, *, seed: int | None = None, repurchase: float | None = None
) -> pd.DataFrame:
    """Play the plain agent, leak-free, in a world of another seed or with the dial of repurchase set.

    Everything is made anew there: shop, people, tasks, recommenders. Stored episodes are not played again.

    Returns:
        One row an episode, with ``target``: whether its product was bought before.
    """
    seed = settings.seed if seed is None else seed
    there = settings.changed(seed=seed, data={"repurchase": repurchase})
    study = Study.load(there, run)
    return tell_repurchases(frame_of(play_plain(study, "leak_free")), study.benchmark)


def tell_repurchases(results: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """Say in ``target`` whether the user had bought the target before their first test task, or it is new."""
    bought = {
        task.task_id: any(b.parent_asin == task.target for b in benchmark.history(task, "test"))
        for task in benchmark.tasks["test"]
    }
    return results.assign(target=results["task_id"].map(bought).map({True: BEFORE, False: NEW}))


def results_by_repurchase(worlds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Average result accuracy by task type and by whether the target was bought before.

    Args:
        worlds: name -> episodes with ``target`` (:func:`tell_repurchases`).

    Returns:
        As of :func:`~pwagents.results.statistics.summarise`, by ``world, type, target`` and ``method``.
    """
    rows = pd.concat([results.assign(world=world) for world, results in worlds.items()])
    everything = pd.concat([rows.assign(target="all"), rows])
    means = summarise(everything, ["world", "type", "target", "method"], ["result_official"])
    order = {name: i for i, name in enumerate((*worlds, *TASK_TYPES, "all", BEFORE, NEW))}
    by = ["world", "type", "target"]
    return means.sort_values(by, key=lambda names: names.map(order), kind="stable", ignore_index=True)


def gains_by_repurchase(worlds: Mapping[str, pd.DataFrame], without: str) -> pd.DataFrame:
    """Test what memory gains by task type and by whether the target was bought before.

    Args:
        worlds: name -> episodes of :func:`play_world`.
        without: the method without memory.

    Returns:
        ``world, target`` ("all", :data:`BEFORE`, :data:`NEW`), then the columns of
        :func:`~pwagents_old.benchmark.analyses_03.gains_of_memory`. Where all targets of a world are of one kind,
        only "all".
    """
    rows = []
    for world, results in worlds.items():
        for target in ("all", BEFORE, NEW):
            part = results if target == "all" else results[results["target"] == target]
            if target == "all" or 0 < len(part) < len(results):
                gains = gains_of_memory(part, without)
                rows.append(gains.assign(world=world, target=target))
    table = pd.concat(rows, ignore_index=True)
    return table[["world", "target", *table.columns.drop(["world", "target"])]]
