"""What changes around a policy that stays as it is: its user's profile, history, parts of Orion, the world.

Departure: the paper does not say whether the policies of its Figure 4 were trained anew for each value; here
one policy plays with all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pwagents.code import hash_of
from pwagents.orion.agent import purchases
from pwagents.orion.experiment import OrionRuns
from pwagents.orion.study import Study, make_study
from pwagents.profiles.contextual import Context, ContextualProfile, ProfileLine
from pwagents.rl.rollout import StartEpisode
from pwagents.schema import Benchmark, Product, Task
from pwagents.seeds import rng
from pwagents.settings import World
from pwagents.shop.environment import Environment

if TYPE_CHECKING:
    from pwagents.data.synthetic import Truth

# What a policy is told of its user when an episode begins.
OWN, FOREIGN, NONE, TRUE = "own profile", "another user's profile", "no profile", "true preferences"
MIXED = "mixed demonstrations"
Changes = Mapping[str, Mapping[str, Any]]  # of settings, group by group
# The synthetic world, and each of its difficulties taken away. "one interest" and "no drift" are other
# worlds, with other histories and tasks.
WORLDS: Mapping[World, Changes] = {
    "as it is": {},
    "one interest": {"data": {"interests": (1, 1)}},
    "no drift": {"data": {"drift": 0.0}},
    "explicit instructions": {"data": {"completeness": 1.0}, "study": {"instructions": "explicit"}},
}
# What takes a part of Orion away.
PARTS: Mapping[str, Changes] = {
    "w/o micro-profiles": {"study": {"micro_profiles": False}},
    "w/o update": {"players": {"updater": "none"}},
    "w/o asking": {"players": {"user": "none"}},
}
# Orion's Figure 4 is about short histories as much as about long ones; else most have their usual length.
# Tasks grow with the history, so each user has as many: else few of those tested would be short.
FIGURE_4: Changes = {"data": {"history": (5, 60), "lengths": "uniform"}, "study": {"tasks_a_user": 3}}


def runs_knowing(
    study: Study, alpha: int | None = None, l_c: int | None = None, last: int | None = None
) -> OrionRuns:
    """Return what plays the test tasks where profiles are made otherwise; None: as usual.

    Args:
        alpha, l_c: as of :class:`pwagents.settings.orion.StudySettings`.
        last: behaviors of each history that are known, the last.
    """
    own = study.settings.study
    alpha, l_c = own.alpha if alpha is None else alpha, own.l_c if l_c is None else l_c
    if (alpha, l_c, last) == (own.alpha, own.l_c, None):
        return OrionRuns(study)
    known = study.benchmark if last is None else with_short_histories(study.benchmark, last)
    found = study.retrieve("test", known, alpha, l_c)
    variant = {"alpha": alpha, "l_c": l_c, "last": last}
    return OrionRuns(study, start=lambda task: study.start(task, found[task.task_id], known), variant=variant)


def with_short_histories(benchmark: Benchmark, last: int) -> Benchmark:
    """Return the benchmark with no more than the last behaviors before each user's first test task."""
    behaviors = dict(benchmark.behaviors)
    for user in dict.fromkeys(task.user_id for task in benchmark.tasks["test"]):
        past = len(benchmark.before(user, benchmark.first_task(user)))
        behaviors[user] = benchmark.behaviors[user][max(past - last, 0) :]
    return replace(benchmark, behaviors=behaviors)


def runs_with_other_profiles(study: Study) -> dict[str, OrionRuns]:
    """Return what plays the test tasks with other profiles than the own, by what they are.

    :data:`FOREIGN` is what was retrieved for another user, :data:`NONE` nothing, :data:`TRUE`, of the
    synthetic world alone, the truth (:func:`true_contexts`). With the profile go the purchases told; the
    earlier review that the agent is told of in a review task stays the own.

    Raises:
        ValueError: see :func:`foreign_contexts`.
    """
    tasks, products = study.test_tasks, study.benchmark.products
    found = {
        FOREIGN: foreign_contexts(tasks, products, study.context, study.seed),
        NONE: {task.task_id: Context(ContextualProfile()) for task in tasks},
    }
    if study.truth:
        found[TRUE] = true_contexts(tasks, study.benchmark, study.truth)
    runs = {}
    for profiles, contexts in found.items():
        begun = [(task_id, each.profile.model_dump(), each.purchases) for task_id, each in contexts.items()]

        def start(task: Task, contexts: Mapping[str, Context] = contexts) -> Environment:
            return study.start(task, contexts[task.task_id])

        runs[profiles] = OrionRuns(study, start=start, variant={"contexts": hash_of(begun)})
    return runs


@lru_cache(maxsize=4)  # each task is compared with all others, of which there are thousands
def train_starts(study: Study, variation: str = "") -> StartEpisode:
    """Return how train tasks begin: as the study has it, or by a variation.

    Args:
        variation: :data:`FOREIGN`, with what retrieval found for another user. The teacher uses it as it
            would the user's own, so what is learned from it is the form of an episode, and to use a memory
            that is wrong. Or :data:`MIXED`: in a share of the tasks (``role_play.not_updated``) nobody
            updates the profile, and an answer stands in the dialogue alone.
    """
    if variation == FOREIGN:
        found = foreign_contexts(study.train_tasks, study.benchmark.products, study.context, study.seed)
        return lambda task: study.start(task, found[task.task_id])
    if variation == MIXED:
        static = make_study(study.settings.changed(**PARTS["w/o update"]))
        share = study.settings.role_play.not_updated
        is_static = {t.task_id: rng(study.seed, MIXED, t.task_id).random() < share for t in study.train_tasks}
        return lambda task: (static if is_static[task.task_id] else study).start(task)
    return study.start


def true_contexts(tasks: Sequence[Task], benchmark: Benchmark, truth: "Truth") -> dict[str, Context]:
    """Return task_id -> what a flawless memory and a flawless retrieval would tell of a test task's user.

    Their preferences of today in the interest that the target is of, which an agent must find out, what they
    avoid there, and what they bought of it, beside others. It is no bound: nobody always buys what they
    prefer, and a tier is not quite a price band of the catalogue, a third of the prices.
    """
    made = {}
    for task in tasks:
        person, domain = truth.people[task.user_id], truth.items[task.target].domain
        current = next(interest.current for interest in person.interests if interest.domain == domain)
        values = [(slot, value) for slot, all_values in domain.values.items() for value in all_values]
        told = [(slot, value, True) for slot, value in current.items()]
        told += [(slot, value, False) for slot, value in values if value in person.dislikes]
        # In the form of the offline profiles, which tell of a price, not of a tier.
        lines = [
            ProfileLine.of(f"{'price' if slot == 'tier' else slot}: {value}", is_wanted, "history")
            for slot, value, is_wanted in told
        ]
        history = benchmark.history(task, "test")
        interest = [i for i, b in enumerate(history) if truth.items[b.parent_asin].domain == domain]
        profile = ContextualProfile(lines=tuple(lines))
        made[task.task_id] = Context(profile, purchases(benchmark, history, interest))
    return made


def foreign_contexts(
    tasks: Sequence[Task], products: Mapping[str, Product], retrieved: Callable[[Task], Context], seed: int
) -> dict[str, Context]:
    """Return task_id -> what was retrieved for a task of another user, drawn by lot.

    It is a task of the same type whose target is of the same category, where another user has one. So the
    profile is about the right sort of products and differs in whose it is alone. The earlier review that the
    agent is told of in a review task stays the own.

    Args:
        retrieved: what retrieval found for a task, such as :meth:`pwagents.orion.study.Study.context`.

    Raises:
        ValueError: all tasks are of one user.
    """
    if len({task.user_id for task in tasks}) < 2:
        raise ValueError("profiles cannot be shuffled between the users of these tasks: there is only one")
    order = [tasks[i] for i in rng(seed, "shuffled profiles").permutation(len(tasks))]
    made = {}
    for i, task in enumerate(order):
        others = [other for other in (*order[i + 1 :], *order[:i]) if other.user_id != task.user_id]
        category = products[task.target].category
        alike = [o for o in others if products[o.target].category == category and o.type == task.type]
        made[task.task_id] = retrieved((alike or others)[0])
    return {task.task_id: made[task.task_id] for task in tasks}
