"""How good user simulators are: do they keep the secret, do they help, do they say the same twice?

What an answer states is read off its text, so that any simulator can be measured: the words that it shares
with the target's page (with the real review in review tasks), and every number.
"""

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from pwagents.progress import progress
from pwagents.schema import Product, Task
from pwagents.users.leaks import adversarial_questions, ask_about, leaks, ordinary_questions
from pwagents.web.environment import UserSimulator
from pwagents.words import content_words, stars_in_words


def simulator_quality(
    simulators: Sequence[UserSimulator],
    products: Mapping[str, Product],
    tasks: Sequence[Task],
    questions: Mapping[str, Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Ask every question on every task, each at the start of a session, and judge the answers.

    Args:
        simulators: the same one under several seeds.
        questions: kind -> questions; {asin} and {title} in them become the target's own. By default what an
            agent honestly asks in a search, and 200 attempts to hear too much.

    Returns:
        One row a kind of question: ``questions, answers, leak rate, refusal rate, consistency``.

        - leak rate: the share of answers that give the target away (:func:`pwagents.users.leaks.leaks`);
        - refusal rate: the share of answers that state no fact;
        - consistency: of the questions that got a fact under some seed, the share whose answers have at
          least one stated fact in common under all seeds. Missing with one seed, or where none got a fact.
    """
    ours = {"honest": ordinary_questions("search"), "adversarial": adversarial_questions()}
    rows = []
    for kind, of_kind in (questions or ours).items():
        facts, leaked = [], []  # a question's facts by seed; whether an answer leaks
        for task in progress(tasks, desc=f"{kind} questions"):
            product = products[task.target]
            for question in of_kind:
                line = ask_about(question, product)
                answers = [simulator(task, (), line).text for simulator in simulators]
                facts.append([stated_facts(text, task, product) for text in answers])
                leaked += [leaks(text, task, product) for text in answers]
        silent = pd.Series([not stated for by_seed in facts for stated in by_seed])
        # Over questions that got a fact under some seed: do all seeds name one in common?
        agree = pd.Series([bool(frozenset.intersection(*by_seed)) for by_seed in facts if any(by_seed)])
        consistency = agree.mean() if len(simulators) > 1 else float("nan")
        rows.append((kind, len(leaked), pd.Series(leaked).mean(), silent.mean(), consistency))
    columns = ["questions", "answers", "leak rate", "refusal rate", "consistency"]
    return pd.DataFrame(rows, columns=columns)


def stated_facts(text: str, task: Task, product: Product) -> frozenset[str]:
    """List the telling words of an answer that are true of the target or the real review, and its numbers.

    A word that is true by chance counts, too.
    """
    if task.type == "review":
        page = [task.review.text, stars_in_words(task.review.rating)]
    else:
        about = [product.title, product.store or "", product.category]
        page = [*about, *product.features, *product.details.values()]
    # Stars are told in words, beside the words of the text itself.
    stated, true = (
        {*content_words(words), *re.findall(r"\w+(?=[ -]stars?\b)", words.lower())}
        for words in (text, " ".join(page))
    )
    return frozenset(stated & true) | frozenset(re.findall(r"\d+", text))
