"""Nothing from a tested user's first test task on is learned from, on real data of users of all times.

Every instruction and review carries a marker of its time, which is looked for in all that the trainings of
notebooks 04, 05 and 06 are given.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from base_model.small import make_small_model
from pwagents.data.amazon import load_amazon
from pwagents.data.splits import parting_date
from pwagents.orion import game as orion_game
from pwagents.orion import study as orion_study
from pwagents.orion.agent import belief_states
from pwagents.orion.train import game_of, make_conversations
from pwagents.puma import study as puma_study
from pwagents.puma.memory import load_prompts
from pwagents.puma.study import Study, load_worlds
from pwagents.puma.study import make_variants as methods_of
from pwagents.puma.train import parameter_rows
from pwagents.schema import Action, Benchmark, Review, Task
from pwagents.settings import NOTEBOOKS, settings_values

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[1] / "../shared/data"))
REAL = DATA / "amazon_reviews_2023"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real Amazon sample at {REAL}")


def task(user: str, timestamp: int) -> Task:
    return Task(
        task_id=f"{user}{timestamp}", user_id=user, type="search", timestamp=timestamp, instruction="buy",
        target="B1", review=Review(rating=5),
    )  # fmt: skip


def test_what_is_kept_is_the_greatest_share_on_the_side_that_loses_more():
    train = [task("a", n) for n in (1, 2, 3, 40)]
    first = {"c": 2, "d": 5, "e": 50}
    tested = [task(user, n) for user, n in first.items()]
    # From 2 on: 1 of 4 and 3 of 3; from 5: 3 of 4 and 2 of 3; from 50: 4 of 4 and 1 of 3.
    assert parting_date(train, tested, first.get) == 5
    with pytest.raises(ValueError, match="none of the 1 train tasks is older than a user's first test task"):
        parting_date([task("a", 5)], [task("b", 5)], {"b": 5}.get)


def mark(benchmark: Benchmark) -> Benchmark:
    """The benchmark with the time of each behaviour and task in its texts."""

    def marked(record, timestamp, **more):
        text = f"{record.review.text} MARKER{timestamp}"
        review = record.review.model_copy(update={"text": text.strip()})
        return record.model_copy(update={"review": review, **more})

    def asked(task):
        return marked(task, task.timestamp, instruction=f"{task.instruction} MARKER{task.timestamp}")

    return replace(
        benchmark,
        behaviors={u: tuple(marked(b, b.timestamp) for b in own) for u, own in benchmark.behaviors.items()},
        tasks={split: tuple(map(asked, tasks)) for split, tasks in benchmark.tasks.items()},
    )


def times_of_markers(*parts: object) -> set[int]:
    return {int(time) for part in parts for time in re.findall(r"MARKER(\d+)", repr(part))}


def load_marked(data, seed, protocol="leak_free"):
    return mark(load_amazon(REAL, n_users=data.n_users, max_products=data.n_products, seed=seed)), None


def settings_of(notebook, folder, **groups):
    """Those of preset smoke, with as many real users."""
    values = settings_values(notebook, {"preset": "smoke"})
    values["data"] |= {"source": "amazon", "data_dir": str(REAL), "n_products": 800}
    for group, changes in groups.items():
        values[group] |= changes
    return NOTEBOOKS[notebook](**values | {"output_dir": folder})


def first_evaluated(benchmark: Benchmark, tasks) -> int:
    return min(benchmark.first_task(task.user_id) for task in tasks)


def bought_before(benchmark: Benchmark, date: int) -> set[str]:
    return {b.parent_asin for own in benchmark.behaviors.values() for b in own if b.timestamp < date}


SHOP = {"recommender": {"epochs": 1, "loss": "cross_entropy"}, "max_tokens": 16}


@needs_real_data
@pytest.mark.parametrize(("training_users", "variants"), [(0, "all"), (20, "few")])
def test_puma_learns_nothing_from_a_tested_users_future(
    training_users, variants, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(puma_study, "load_benchmark", load_marked)
    study = {"training_users": training_users, "variants": variants, "memory_lengths": (), "test_tasks": 0}
    settings = settings_of("04_puma", tmp_path, shop=SHOP, study=study, data={"n_users": 30})
    worlds = load_worlds(settings)
    date = first_evaluated(worlds.tested, worlds.tasks)
    # The test could fail: train tasks of other users lie in the future of those tested.
    assert any(task.timestamp >= date for task in worlds.learned.tasks["train"])
    assert worlds.train_tasks and all(task.timestamp < date for task in worlds.train_tasks)

    make_small_model(tokenizer, 0).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    study = Study(worlds, settings, tmp_path / "base", load_prompts())
    rows = [parameter_rows(study, method) for method in methods_of(settings.study).values()]
    seen = times_of_markers(*study.begun, *rows)
    assert seen and max(seen) < date
    (recommender,) = study.learning_shop.recommenders.recommenders
    assert set(recommender.index) <= bought_before(worlds.learned, date)
    assert sum(worlds.n_left_out)


GROUPS = {
    "data": {"n_users": 20},
    "shop": SHOP,
    "study": {"training_users": 30, "eval_tasks": 0, "task_types": ["search", "recommend", "review"]},
    "role_play": {"n_trajectories": 3, "review_success": 0.0, "success_rank": 10},
}


@pytest.fixture(scope="module")
def orion(tmp_path_factory):
    """The study of notebooks 05 and 06 with all three sorts of task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orion_study, "load_benchmark", load_marked)
        settings = settings_of("06_orion_grpo", tmp_path_factory.mktemp("orion"), **GROUPS)
        yield orion_study.make_study(settings)


@needs_real_data
def test_orions_role_play_learns_nothing_from_a_tested_users_future(orion):
    date = first_evaluated(orion.benchmark, orion.test_tasks)
    trained = [t for t in orion.benchmark.tasks["train"] if t.user_id not in orion.held_out]
    assert any(task.timestamp >= date for task in trained) and orion.train_tasks
    tasks = {task.task_id: task for task in orion.train_tasks}
    played = make_conversations(orion, 3).kept
    firsts = [orion.start(tasks[each.task_id]).state for each in played]
    pairs = zip(firsts, played, strict=True)
    states = [state for first, each in pairs for state in belief_states(first, each.trajectory)]
    seen = times_of_markers(*states)
    assert seen and max(seen) < date


@needs_real_data
def test_what_orions_rewards_are_earned_on_knows_nothing_of_a_tested_users_future(orion, monkeypatch):
    """Episodes of reinforcement learning: where they begin, what recommenders know, who is asked."""
    date = first_evaluated(orion.benchmark, orion.test_tasks)
    monkeypatch.setattr(orion_game, "make_study", lambda settings: orion)
    settings = settings_of("06_orion_grpo", orion.output_dir, **GROUPS)
    game = game_of(settings, settings.rl.grpo)
    assert list(game.tasks) == list(orion.train_tasks)
    known = bought_before(orion.benchmark, date)
    for task in game.tasks:
        episode = game.start(task)
        assert set(getattr(episode.recommender, "index", {})) <= known
        asked = Action(name="respond", arguments={"content": "Which brand would you like?"})
        seen = times_of_markers(episode.state, episode.step(asked), episode.state)
        assert max(seen) < date
