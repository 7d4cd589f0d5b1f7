"""A conversation to look at."""

from pwagents.benchmark.talks import longest_talk


def test_the_longest_conversation_is_about_a_search_or_a_recommendation(world, engine):
    benchmark = world.benchmark
    user = benchmark.tasks["test"][0].user_id
    tasks = [task for task in benchmark.tasks["test"] if task.user_id == user]
    task, talk = longest_talk(benchmark, engine, tasks, seed=0)
    assert task in tasks and task.type != "review" and talk.task_id == task.task_id
    assert any(step.action.name == "respond" for step in talk.steps)
    alone = [longest_talk(benchmark, engine, [t], seed=0)[1] for t in tasks if t.type != "review"]
    assert len(talk.steps) == max(len(each.steps) for each in alone)


def test_of_a_user_who_only_reviews_it_is_about_a_review(world, engine):
    reviews = [task for task in world.benchmark.tasks["test"] if task.type == "review"][:1]
    task, talk = longest_talk(world.benchmark, engine, reviews, seed=0)
    assert task is reviews[0] and talk.steps
