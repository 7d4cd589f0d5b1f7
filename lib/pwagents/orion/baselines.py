"""The prompt baselines of Orion's Table 1 on Orion's own tasks, through any chat model.

The paper names five and their three backbones (5.1), and prints no prompt. So the agents are those of
notebook 03, in our words (:data:`pwagents.agents.methods.METHODS`). What each knows of its user, beside what
is asked and answered:

- Raw and CoT: nothing, as nothing is said of it (5.1).
- ReAct: the latest behaviours, as in PersonalWAB (A.2), on whose benchmark Orion's tasks are built (5.1).
- ChatShop: nothing; it stands for agents that are not personalized (5.1).
- PUMA: its task-specific memory, told to the same model: "Personalized Prompting" (5.1; PersonalWAB, 5.1).

None has Orion's contextual profile: prompt-based methods have static ones at most (5.2).
"""

from pwagents.agents.chat import Setup
from pwagents.agents.methods import CODE as METHODS_CODE
from pwagents.agents.methods import METHODS
from pwagents.embedding import Embedder
from pwagents.orion.play import CODE as PLAY
from pwagents.orion.study import Study
from pwagents.schema import Task, Trajectory
from pwagents.settings import GrpoNotebook
from pwagents.store import Episode, episodes

BASELINES = ("No memory", "Chain of thought", "ReAct", "ChatShop", "PUMA (prompted)")
CODE = tuple(dict.fromkeys((*METHODS_CODE, *PLAY, "orion.baselines")))


def play_baselines(study: Study, settings: GrpoNotebook) -> list[Episode]:
    """Let each baseline play the test tasks with each of ``players.policies``.

    Raises:
        InfrastructureError: some episode could not be played. All others are stored.
    """
    players, played = settings.players, []
    embedder = Embedder(study.output_dir / "cache", settings.shop.max_tokens, batch_size=64)
    for model in map(study.model, players.policies):
        setup = Setup(model, study.benchmark.products, embedder=embedder, seed=study.seed)
        for method in BASELINES:
            agent = METHODS[method](setup)

            def solve(task: Task, agent=agent) -> Trajectory:
                episode = study.start(task)
                episode.update = None  # no baseline reads the profile
                return episode.play(agent)

            played += episodes(
                study.output_dir / "runs" / "orion_baselines.jsonl",
                study.test_tasks,
                solve,
                {**study.facts, "policy": players.facts(), "code": CODE},
                method=method,
                model=model.name,
                workers=players.workers,
                stored_only=settings.stored_runs_only,
                served=study.model.served,
            )
    return played
