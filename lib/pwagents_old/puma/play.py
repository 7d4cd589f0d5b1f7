"""The test of notebook 04: agents on test tasks, their actions computed at once; how long a task takes.

In the single-turn track no prompt depends on an earlier answer, so the actions of all tasks can be known
before the first episode begins. What the environment makes of them is the same as one by one.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pwagents.agents.memory import Memory
from pwagents.agents.offline import FunctionClassifier, RuleAgent
from pwagents.data.splits import sample_tasks
from pwagents.progress import progress
from pwagents.schema import Action, Protocol, Task, Trajectory
from pwagents.results.episodes import mark_targets, records_frame
from pwagents.settings import plain
from pwagents.shop.environment import Agent
from pwagents.store import Episode, episodes
from pwagents_old.lm.launch import side_by_side
from pwagents_old.project import code_hash
from pwagents.files import write_aside
from pwagents_old.puma.agent import PumaAgent
from pwagents_old.puma.labels import Begun, begin_tasks
from pwagents_old.puma.settings import PUMA, Method, PumaNotebook
from pwagents_old.puma.study import PumaStudy, make_base
from pwagents_old.puma.train import PumaModels, Trained
from pwagents_old.puma.worlds import load_worlds

PLAIN = "Plain agent"
# The rooms that decide, beside data, settings and models, how an episode goes.
CODE = ("puma", "agents", "web", "profiles", "lm", "embedding", "schema", "seeds", "words")
ActAll = Callable[[Sequence[Begun]], list[Action]]


def make_agent(study: PumaStudy, method: Method, trained: Trained, protocol: Protocol) -> PumaAgent:
    """Make the agent of a variant."""
    models, sizes = trained[:2], study.settings.study
    length, at_once = sizes.max_new_tokens, sizes.batch_size
    return PumaAgent(*models, study.memory, study.prompts, method, protocol, length, at_once)


def write_functions(records: Sequence[Episode], tasks: Sequence[Task], file: Path) -> None:
    """Write the function that step 1 named for each instruction, for PUMA (gpt-4o) in notebook 03."""
    instructions = {task.task_id: task.instruction for task in tasks}
    functions = {
        instructions[record.task_id]: record.trajectory.steps[0].action.name
        for record in records
        if record.method == PUMA and record.trajectory
    }
    write_aside(file, json.dumps(functions, indent=1))


def make_plain_agent(study: PumaStudy) -> RuleAgent:
    """Make the plain agent of notebook 03 with its task-specific memory; it learns from the train tasks."""
    classifier = FunctionClassifier([begun.task for begun in study.begun])
    return RuleAgent(classifier, Memory("task_specific", study.memory.products, study.memory.embedder))


def play(
    study: PumaStudy, name: str, method: Method, trained: Trained, protocol: Protocol | None = None
) -> list[Episode]:
    """Let a variant play the test tasks, by default under the study's protocol."""
    protocol = protocol or study.protocol
    agent = make_agent(study, method, trained, protocol)

    def act(begun: Sequence[Begun]) -> list[Action]:
        return agent.act([each.state for each in begun], [each.function for each in begun])

    models = PumaModels(study)
    names = ", ".join(models.name_of(folder) for folder in trained[:2])
    params = {"method": plain(method), "prompts": study.prompts.origin}
    params["max_new_tokens"] = study.settings.study.max_new_tokens
    return play_at_once(study, name, act, protocol, names, params)


def play_plain(study: PumaStudy, agent: RuleAgent) -> list[Episode]:
    """Let the agent of :func:`make_plain_agent` play the test tasks."""
    learned = {"classifier": [begun.task.task_id for begun in study.begun]}
    return play_at_once(
        study, PLAIN, lambda begun: [agent(each.state) for each in begun], study.protocol, "none", learned
    )


def play_at_once(
    study: PumaStudy, name: str, act: ActAll, protocol: Protocol, model: str, params: Mapping[str, Any]
) -> list[Episode]:
    """Play the test tasks, in their order; stored episodes are not played again.

    The seconds in the records are those of the environment alone: the actions were computed before.

    Args:
        name: of the run, in records and tables.
        act: computes the actions of all tasks; called only where some episode is not stored.
        model, params: what decides an action, for the keys of records.
    """
    tasks, settings = study.worlds.tasks, study.settings
    actions: dict[str, Action] = {}

    def solve(task: Task) -> Trajectory:
        if not actions:
            begun = begin_tasks(tasks, partial(study.begin_test, protocol=protocol))
            acted = act(begun)
            actions.update({each.task.task_id: action for each, action in zip(begun, acted, strict=True)})
        environment = study.begin_test(task, protocol)
        return environment.play(lambda _: actions[task.task_id])

    shop = plain(settings.shop) | study.shop.facts(protocol)
    facts = {"data": study.worlds.tested.content_hash, "code": code_hash(*CODE), "shop": shop}
    facts |= {"protocol": protocol, "seed": study.seed}
    return episodes(
        settings.output_dir / "runs" / "04_puma.jsonl",
        tasks,
        solve,
        facts | dict(params),
        method=name,
        model=model,
        here=True,  # the first episode computes the actions of all
        stored_only=settings.stored_runs_only,
    )


def time_agents(study: PumaStudy, agents: Mapping[str, Agent]) -> pd.DataFrame:
    """Time some of the test tasks, one after another, as a user would wait (PersonalWAB's Figure 7).

    Returns:
        Wall-clock seconds of whole episodes: ``method, task_id, user_id, seconds``.
    """
    tasks = sample_tasks(study.worlds.tasks, study.settings.study.timed_tasks, study.seed)
    rows = []
    for name, agent in agents.items():
        for i, task in enumerate(progress([tasks[0], *tasks], desc="time", unit="episode")):
            environment = study.begin_test(task, study.protocol)
            begin = time.perf_counter()
            environment.play(agent)
            if i:  # the first one only loads what has to be loaded
                rows.append((name, task.task_id, task.user_id, time.perf_counter() - begin))
    return pd.DataFrame(rows, columns=["method", "task_id", "user_id", "seconds"])


def other_seed(study: PumaStudy, settings: PumaNotebook) -> PumaStudy:
    """Return the study for trainings with the seed of ``settings``, from the base model on.

    A seed decides the small base model's text and first weights, the order of fine-tuning, the samples and
    their pairs. A base model that is given, data, shops, labels and test tasks stay.
    """
    other = copy(study)
    other.settings, other.base = settings, make_base(settings, study.worlds)
    return other


def other_world(settings: PumaNotebook) -> PumaStudy:
    """Make a study anew: shop, people and base model, with other data and another seed of all."""
    worlds = load_worlds(settings)
    return PumaStudy(worlds, settings, make_base(settings, worlds))


def play_anew(
    make_study: Callable[[PumaNotebook], PumaStudy],
    runs: Mapping[Any, PumaNotebook],
    names: Sequence[str],
    preferences: str,
) -> dict[Any, pd.DataFrame]:
    """Train variants in several runs, and let them play the test tasks of each.

    What was trained is found again. Trainings of the small model run beside each other.

    Args:
        make_study: :func:`other_seed` of a study, or :func:`other_world`; processes get it by pickle.
        runs: a seed or the name of a world -> its settings
            (:meth:`pwagents_old.puma.settings.PumaNotebook.seeded`).
        names: of variants (:meth:`pwagents_old.puma.settings.PumaNotebook.methods`), and :data:`PLAIN`.

    Returns:
        Run -> one row an episode, with ``target``, whether its product was bought before
        (:func:`pwagents.results.episodes.mark_targets`).

    Raises:
        InfrastructureError: some episode could not be played.
    """
    first, train = next(iter(runs.values())), partial(_train, make_study, names, preferences)
    trained = side_by_side(train, [*runs.values()], first.base, stored_only=first.stored_runs_only)
    frames = {}
    for (run, settings), models in zip(runs.items(), trained, strict=True):
        study, methods, records = make_study(settings), settings.methods(), []
        for name in names:
            if name == PLAIN:
                records += play_plain(study, make_plain_agent(study))
            else:
                records += play(study, name, methods[name], models[name])
        frames[run] = mark_targets(records_frame(records), study.worlds.tested)
    return frames


def _train(
    make_study: Callable[[PumaNotebook], PumaStudy],
    names: Sequence[str],
    preferences: str,
    settings: PumaNotebook,
) -> dict[str, Trained]:
    models, methods = PumaModels(make_study(settings)), settings.methods()
    return {name: models.train(methods[name], preferences) for name in names if name != PLAIN}
