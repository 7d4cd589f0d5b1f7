"""Which tasks are played, and which groups are drawn anew."""

from collections import Counter

import pytest

from pwagents.rl.draw import Stream, draw_groups
from pwagents.settings import GrpoSettings, PpoSettings

from . import game


def tasks_of(*kinds):
    pairs = zip(kinds, game.make_tasks(len(kinds)), strict=True)
    return [task.model_copy(update={"type": kind}) for kind, task in pairs]


TASKS = tasks_of(*["search"] * 8, *["review"] * 4)


def test_kinds_take_turns_and_each_pass_over_a_kind_has_every_task_once_in_another_order():
    stream = Stream(TASKS, 2, seed=0)
    drawn = [stream.task(slot, draw) for slot in range(16) for draw in range(2)]
    assert [task.type for task in drawn] == ["search", "search", "review", "review"] * 8
    for kind, n in (("search", 8), ("review", 4)):
        own = [task.task_id for task in drawn if task.type == kind]
        passes = [tuple(own[i : i + n]) for i in range(0, 16, n)]
        assert len({frozenset(each) for each in passes}) == 1 and len({*passes}) == len(passes)
    again = Stream(TASKS, 2, seed=0)
    assert [again.task(15, 1), again.task(0, 0)] == [drawn[-1], drawn[0]]
    assert drawn != [Stream(TASKS, 2, seed=1).task(slot, draw) for slot in range(16) for draw in range(2)]
    with pytest.raises(ValueError, match="no tasks to train on"):
        Stream([], 1, 0)


def draw(config, succeeds, tasks=TASKS, slots=range(4)):
    """Play the slots of a step; ``succeeds(task, number of the episode)`` says which episodes do."""
    played, numbers = [], Counter()

    def play(model, batch, seed):
        played.append([task.task_id for task in batch])
        return game.play_bandit(model, batch, seed)

    def pay(episodes):
        earned = []
        for _, episode in episodes:
            name = episode.task_id
            earned.append([float(succeeds(name, numbers[name]))])
            numbers[name] += 1
        return {"task": earned, "alignment": [[0.01 * i] for i in range(len(earned))]}

    stream = Stream(tasks, getattr(config, "draws", 1), config.seed)
    watched = game.Game(play, pay, tasks=tasks)
    return draw_groups(watched, game.make_model().eval(), None, stream, slots, config, 0), played


def test_a_group_whose_episodes_agree_in_success_is_drawn_anew_until_the_bound():
    """Whatever else they earned. Reviews never differ; searches do at the second draw."""
    config = GrpoSettings(max_steps=1, num_generations=4, draws=3)
    first = {Stream(TASKS, 3, 0).task(slot, 0).task_id for slot in (0, 2)}
    reviews = {task.task_id for task in TASKS if task.type == "review"}
    drawn, played = draw(config, lambda name, n: name not in first | reviews and n % 2)
    assert [len(each) for each in played] == [16, 16, 8]
    counts = {"drawn_search": 4, "informative_search": 2, "drawn_review": 6, "informative_review": 0}
    assert drawn.counts == counts | {"sampled": 40}
    assert len(drawn.first.rollouts) == 16, "what the policy did, whatever was kept"
    kept = [{rollout.trajectory.task_id for rollout in group.rollouts} for group in drawn.groups]
    assert [*map(len, kept)] == [1, 1] and not set.union(*kept) & (first | reviews), "two slots stay empty"


@pytest.mark.parametrize("config", [GrpoSettings(max_steps=1), PpoSettings(max_steps=1, num_generations=1)])
def test_without_further_draws_all_that_was_played_is_learned_from(config):
    drawn, played = draw(config, lambda *_: True)
    assert len(drawn.groups) == 4 and len(played) == 1
    assert drawn.counts["sampled"] == 4 * config.num_generations == len(drawn.first.rollouts)
