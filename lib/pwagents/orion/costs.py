"""What language models will be asked in notebooks 05 to 08 and cost at most: a row for each role that one
plays, none where no language model plays any.

Guesses on the safe side: two conversations of the role-play for each one that is kept, four steps in each
episode.
"""

import pandas as pd

from pwagents.llm.budget import Load, estimate
from pwagents.orion.sensitivity import PARTS, SensitivityNotebook
from pwagents.orion.settings import (
    GROUP_STEPS,
    AblationsNotebook,
    OrionPlayers,
    ReinforcedNotebook,
    SftNotebook,
)


def sft_cost(settings: SftNotebook) -> pd.DataFrame:
    """Of notebook 05."""
    most, tested = settings.role_play.numbers[-1], settings.study.eval_tasks
    users = settings.data.n_users + settings.study.training_users
    # On the test tasks play five references, two models in two ways each, a model a number, and one of them
    # with three other profiles.
    episodes = 2 * most + (12 + len(settings.role_play.scaling)) * tested
    made = {
        **_profiling(settings.players, users),
        **_teaching(settings.players, 2 * most + tested),
    }
    return estimate(made | _in_every_episode(settings.players, episodes))


def rl_cost(settings: ReinforcedNotebook) -> pd.DataFrame:
    """Of notebook 06."""
    most = settings.rl.max_steps
    trained = (2 * most + min(GROUP_STEPS, most)) * settings.rl.episodes  # by GRPO, by PPO, and before them
    logged = 2 * _logged(settings)
    judge = _judging(settings.players, trained)
    # On the test tasks play five references, four models in two ways each, and two with three other profiles;
    # these two, too, with instructions that say more, twice.
    tested = 23 * settings.study.eval_tasks
    return estimate(judge | _in_every_episode(settings.players, trained + logged + tested))


def ablations_cost(settings: AblationsNotebook) -> pd.DataFrame:
    """Of notebook 07."""
    rl, pipelines, parts = settings.rl, len(settings.rl.seeds), len(PARTS)
    users = settings.data.n_users + settings.study.training_users
    conversations = 2 * pipelines * settings.role_play.n_trajectories
    # A pipeline ends in each method, and in GRPO without each part; variants are trained once.
    trained = pipelines * (len(rl.methods) + parts) + len(rl.variants)
    # A pipeline's base and fine-tuned model are tested as well, and GRPO's policy without each part and with
    # three other profiles.
    tested = trained + pipelines * (2 + parts + 3)
    rewarded = trained * rl.max_steps * rl.episodes
    made = {
        **_profiling(settings.players, users * (1 + parts)),
        **_teaching(settings.players, conversations),
        **_judging(settings.players, rewarded),
    }
    episodes = conversations + rewarded + trained * _logged(settings) + tested * settings.study.eval_tasks
    return estimate(made | _in_every_episode(settings.players, episodes))


def sweep_cost(settings: SensitivityNotebook) -> pd.DataFrame:
    """Of notebook 08, where 05 and 06 ran before; else their costs come beside."""
    sweep, tested = settings.study.sweep, settings.study.eval_tasks
    profiled = [*sweep.alpha, *sweep.l_c, *sweep.clusters, *sweep.last, *sweep.last, *sweep.noise]
    parts = len(sweep.worlds) * (1 + len(PARTS))
    users = settings.data.n_users * (len(profiled) + parts)
    episodes = tested * (len(profiled) + parts + len(sweep.users))
    return estimate(_profiling(settings.players, users) | _in_every_episode(settings.players, episodes))


def _logged(settings: ReinforcedNotebook) -> int:
    """Episodes of the evaluations that a training's log holds."""
    rl, tested = settings.rl, settings.study.eval_tasks
    times = sum(rl.evaluates_after(step) for step in range(rl.max_steps + 1))
    return times * min(rl.log_tasks or tested, tested)


def _profiling(players: OrionPlayers, users: int) -> dict[str, Load]:
    return {"profiler": Load(players.profiler, users, 10, 1_200, 250)}


def _teaching(players: OrionPlayers, episodes: int) -> dict[str, Load]:
    return {"teacher": Load(players.teacher, episodes, 4, 2_500, 80)}


def _judging(players: OrionPlayers, episodes: int) -> dict[str, Load]:
    return {"judge": Load(players.judge, episodes, 4, 1_500, 10)}


def _in_every_episode(players: OrionPlayers, episodes: int) -> dict[str, Load]:
    """Of those who are in every episode."""
    return {
        "user": Load(players.user, episodes, 1.5, 1_200, 40),
        "updater": Load(players.updater, episodes, 4, 900, 150),
    }
