"""The test of notebook 04: variants play the test tasks, with all their actions computed at once.

In the single-turn track no prompt depends on an earlier answer, so the actions of all tasks can be known
before the first episode begins. What the environment makes of them is the same as one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pwagents.agents.memory import Memory
from pwagents.agents.offline import FunctionClassifier, RuleAgent
from pwagents.lm.launch import side_by_side
from pwagents.puma.agent import CODE as AGENT
from pwagents.puma.agent import PumaAgent
from pwagents.puma.labels import Begun, begin_tasks
from pwagents.puma.memory import Method
from pwagents.schema import Action, Benchmark, Protocol, Task, Trajectory
from pwagents.settings import PumaNotebook
from pwagents.shop.environment import Environment
from pwagents.store import Episode, episodes

if TYPE_CHECKING:
    from pwagents.puma.study import Study
    from pwagents.puma.train import Trained

PLAIN = "Plain agent"
CODE = (*AGENT, "puma.play")


def make_plain_agent(study: "Study") -> RuleAgent:
    """Make the plain agent of notebook 03 with its task-specific memory; it learns from the train tasks."""
    classifier = FunctionClassifier([begun.task for begun in study.begun])
    return RuleAgent(classifier, Memory("task_specific", study.memory.products, study.memory.embedder))


def play(
    study: "Study", name: str, method: Method, trained: "Trained", protocol: Protocol | None = None
) -> list[Episode]:
    """Let a variant play the test tasks, by default under the study's protocol."""
    protocol = protocol or study.protocol
    agent = PumaAgent(study, method, trained, protocol)
    act = lambda begun: agent.act([e.state for e in begun], [e.function for e in begun])  # noqa: E731
    names = ", ".join(map(study.name_of, (trained.identifier, trained.writer)))
    facts = {"method": method.model_dump(), "prompts": study.prompts.origin}
    facts["max_new_tokens"] = study.settings.study.max_new_tokens
    return play_at_once(study, name, act, protocol, names, facts)


def play_plain(study: "Study", agent: RuleAgent) -> list[Episode]:
    """Let the agent of :func:`make_plain_agent` play the test tasks."""
    learned = {"classifier": [begun.task.task_id for begun in study.begun]}
    act = lambda begun: [agent(each.state) for each in begun]  # noqa: E731
    return play_at_once(study, PLAIN, act, study.protocol, "none", learned)


def play_at_once(
    study: "Study",
    name: str,
    act: Callable[[Sequence[Begun]], list[Action]],
    protocol: Protocol,
    model: str,
    facts: Mapping[str, Any],
) -> list[Episode]:
    """Play the test tasks, in their order; stored episodes are not played again.

    The seconds in the records are those of the environment alone: the actions were computed before.

    Args:
        name: of the run, in records and tables.
        act: computes the actions of all tasks; called only if some episode is not stored.
        model, facts: what decides an action, for the keys of records.
    """
    tasks, settings = study.worlds.tasks, study.settings
    begin = partial(Environment, study.shop, protocol=protocol)
    actions: dict[str, Action] = {}

    def solve(task: Task) -> Trajectory:
        if not actions:
            begun = begin_tasks(tasks, begin)
            acted = act(begun)
            actions.update({each.task.task_id: action for each, action in zip(begun, acted, strict=True)})
        return begin(task).play(lambda _: actions[task.task_id])

    shared = {"data": study.worlds.tested.content_hash, "protocol": protocol, "seed": study.seed}
    shared |= {"shop": settings.shop.model_dump(), "code": CODE} | study.shop.facts(protocol)
    return episodes(
        settings.output_dir / "runs" / "04_puma.jsonl",
        tasks,
        solve,
        shared | dict(facts),
        method=name,
        model=model,
        here=True,  # the first episode computes the actions of all
        stored_only=settings.stored_runs_only,
    )


def play_anew(
    make_study: Callable[[PumaNotebook], "Study"],
    runs: Mapping[Any, PumaNotebook],
    methods: Mapping[str, Method],
    train: Callable[["Study", Method], "Trained"],
    *,
    plain: bool = False,
) -> dict[Any, tuple[Benchmark, list[Episode]]]:
    """Train variants in several runs, and let them play the test tasks of each.

    What was trained is found again. Trainings of the small model run beside each other.

    Args:
        make_study: makes a run's study from its settings; processes get it by pickle.
        runs: a seed or the name of a world -> its settings.
        methods: the variants, by their names in tables.
        train: :func:`pwagents.puma.train.train` with the name of a setting of DPO.
        plain: let the plain agent play, too.

    Returns:
        Run -> the benchmark that was tested in, and the episodes.
    """
    first, trainings = next(iter(runs.values())), partial(_train_all, make_study, methods, train)
    trained = side_by_side(trainings, [*runs.values()], first.base, one_by_one=first.stored_runs_only)
    played = {}
    for (run, settings), models in zip(runs.items(), trained, strict=True):
        study = make_study(settings)
        records = play_plain(study, make_plain_agent(study)) if plain else []
        for name, method in methods.items():
            records += play(study, name, method, models[name])
        played[run] = study.worlds.tested, records
    return played


def _train_all(
    make_study: Callable[[PumaNotebook], "Study"],
    methods: Mapping[str, Method],
    train: Callable[["Study", Method], "Trained"],
    settings: PumaNotebook,
) -> dict[str, "Trained"]:
    study = make_study(settings)
    return {name: train(study, method) for name, method in methods.items()}
