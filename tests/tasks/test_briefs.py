"""A benchmark with its instructions written anew: what changes, and what a writer is told."""

import pytest

from pwagents.tasks.writers import with_instructions


class Clerk:
    """Numbers the instructions, and keeps the briefs."""

    def __call__(self, briefs):
        self.briefs = list(briefs)
        return [f"Request {i}" for i in range(len(briefs))]


def test_only_instructions_change(source):
    made = with_instructions(source, Clerk())
    assert made.content_hash != source.content_hash
    assert (made.products, made.behaviors, made.name) == (source.products, source.behaviors, source.name)
    for split, tasks in source.tasks.items():
        assert [t.instruction for t in made.tasks[split]] == [f"Request {i}" for i in range(len(tasks))]
        assert [t.model_copy(update={"instruction": "-"}) for t in made.tasks[split]] == [
            t.model_copy(update={"instruction": "-"}) for t in tasks
        ]


def test_a_split_that_is_not_named_keeps_its_instructions(world):
    made = with_instructions(world, Clerk(), splits=("test",))
    assert made.tasks["train"] == world.tasks["train"]
    assert made.tasks["test"] != world.tasks["test"]


def test_a_writer_is_told_of_target_profile_and_the_past_alone(world, facts):
    clerk, profile = Clerk(), facts()
    user = world.tasks["test"][0].user_id
    with_instructions(world, clerk, profiles={user: profile}, splits=("test",))
    for task, brief in zip(world.tasks["test"], clerk.briefs, strict=True):
        assert brief.task == task and brief.product.parent_asin == task.target
        assert brief.profile == (profile if task.user_id == user else None)
        assert brief.history == world.history(task, "test")


def test_a_writer_that_leaves_one_out_is_refused(world):
    with pytest.raises(ValueError):
        with_instructions(world, lambda briefs: ["one"])
