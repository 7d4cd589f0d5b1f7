"""How good user simulators are: do they keep the secret, do they help, do they say the same twice?

What an answer states is read off its text alone, so that any simulator can be measured, a language model too:
its stated facts are the words that it shares with the target's page (title, store, category, features,
details), or with the real review in review tasks, and every number.
"""

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from pwagents.progress import progress
from pwagents.schema import Benchmark, Product, Task
from pwagents.users.leaks import adversarial_questions, ask_about, leaks, ordinary_questions
from pwagents.users.rules import RuleUser
from pwagents.web.environment import UserSimulator
from pwagents.words import content_words, stars_in_words


def simulator_quality(
    simulators: Mapping[int, UserSimulator],
    products: Mapping[str, Product],
    tasks: Sequence[Task],
    questions: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Ask every question on every task, each at the start of a session, and judge the answers.

    Args:
        simulators: seed -> the simulator with that seed.
        products: the catalogue.
        questions: kind -> questions; {asin} and {title} in them become the target's own
            (:func:`pwagents.users.leaks.ask_about`).

    Returns:
        One row a kind of question: ``questions, answers, leak rate, refusal rate, consistency``.

        - leak rate: the share of answers that give the target away (:func:`pwagents.users.leaks.leaks`);
        - refusal rate: the share of answers that state no fact;
        - consistency: of the questions that got a fact under some seed, the share whose answers have at
          least one stated fact in common under all seeds. Missing with one seed, or where none got a fact.
    """
    rows = []
    for kind, asked in questions.items():
        answers = _ask_all(kind, simulators, products, tasks, asked)
        rows.append(
            {
                "questions": kind,
                "answers": len(answers),
                "leak rate": answers["leak"].mean(),
                "refusal rate": (answers["facts"].map(len) == 0).mean(),
                "consistency": _consistency(answers) if len(simulators) > 1 else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def rule_user_quality(benchmark: Benchmark, tasks: Sequence[Task], seeds: int = 3) -> pd.DataFrame:
    """:func:`simulator_quality` of the user by rules: asked honestly, and by 200 attempts to hear too much.

    Args:
        tasks: searches or recommendations; reviews have other questions.
    """
    users = {seed: RuleUser(benchmark.products, benchmark.profiles, seed) for seed in range(seeds)}
    questions = {"honest": ordinary_questions("search"), "adversarial": adversarial_questions()}
    return simulator_quality(users, benchmark.products, tasks, questions)


def stated_facts(text: str, task: Task, product: Product) -> frozenset[str]:
    """The telling words of an answer that are true of the target (in a review task: of the review), and
    its numbers. A word that is true by chance counts, too."""
    if task.type == "review":
        known = [task.review.text, stars_in_words(task.review.rating)]
    else:
        about = [product.title, product.store or "", product.category]
        known = [*about, *product.features, *product.details.values()]
    return _telling(text) & _telling(" ".join(known)) | frozenset(re.findall(r"\d+", text))


def _telling(text: str) -> frozenset[str]:
    return frozenset([*content_words(text), *re.findall(r"\w+(?=[ -]stars?\b)", text.lower())])


def _consistency(answers: pd.DataFrame) -> float:
    """The share of questions whose facts have one in common under all seeds, of those with any fact."""
    asked = [list(facts) for _, facts in answers.groupby(["task", "question"])["facts"]]
    agree = [bool(frozenset.intersection(*facts)) for facts in asked if any(facts)]
    return sum(agree) / len(agree) if agree else float("nan")


def _ask_all(
    kind: str,
    by_seed: Mapping[int, UserSimulator],
    products: Mapping[str, Product],
    tasks: Sequence[Task],
    questions: Sequence[str],
) -> pd.DataFrame:
    """One row an answer: ``task, question, seed, leak, facts``."""
    rows = []
    for task in progress(tasks, desc=f"{kind} questions"):
        product = products[task.target]
        for question in questions:
            for seed, simulator in by_seed.items():
                text = simulator(task, (), ask_about(question, product)).text
                facts = stated_facts(text, task, product)
                rows.append((task.task_id, question, seed, leaks(text, task, product), facts))
    return pd.DataFrame(rows, columns=["task", "question", "seed", "leak", "facts"])
