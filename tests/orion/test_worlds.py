"""Whole runs in other worlds; what the run's own world has made is found."""

from pwagents.orion.settings import AblationsNotebook
from pwagents.orion.study import make_study
from pwagents.orion.train import OrionModels
from pwagents.orion.worlds import play_worlds

from .small_study import GROUPS, SEARCHES, notebook, small_settings
from .test_train import STEP


def test_a_world_has_its_own_people_and_trainings_and_the_runs_own_is_found(tiny, tmp_path):
    trainer = GROUPS["sft"]["trainer"] | {"max_steps": 1}
    few = {"study": SEARCHES, "base": {"model": str(tiny)}, "sft": {"trainer": trainer}}
    small = small_settings(tmp_path, role_play={"n_trajectories": 4}, **few)
    rl = STEP | {"log_tasks": 1, "seeds": (0,), "methods": ("GRPO", "PPO"), "worlds": (0, 1)}
    settings = notebook(AblationsNotebook, small, rl=rl)

    models = OrionModels(make_study(settings))
    sft = models.sft(models.base(), models.role_play(4).kept)
    grpo = models.reinforced(sft, settings.rl.grpo, settings.paid, settings.rl.log_tasks)
    frame = play_worlds(models, settings)

    made = {name: sorted((tmp_path / "models").glob(f"{name}-*")) for name in ("orion-sft", "orion-grpo")}
    assert sft in made["orion-sft"] and grpo in made["orion-grpo"] and {*map(len, made.values())} == {2}
    own, other = (set(frame.loc[frame["world"] == world, "task_id"]) for world in (0, 1))
    assert own == {task.task_id for task in models.study.test_tasks} and not own & other
    told = frame.groupby("world")["method"].unique().map(list)
    assert told.to_list() == 2 * [["Base", "SFT", "GRPO", "PPO"]]
