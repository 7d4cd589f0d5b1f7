"""The user at the notebook: through the widget's objects, through input(), and in a real kernel."""

import threading
import time

import pytest
from jupyter_client.manager import start_new_kernel

from pwagents.errors import InfrastructureError
from pwagents.users import human
from pwagents.users.human import HumanUser


@pytest.fixture
def in_a_notebook(monkeypatch):
    monkeypatch.setattr(human, "in_notebook", lambda: True)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answer(user: HumanUser, text: str) -> None:
    wait_until(lambda: not user.button.disabled)
    user.box.value = text
    user.button.click()


def test_what_is_typed_reaches_the_agent(in_a_notebook, world_benchmark, task_of, exchange):
    user = HumanUser(world_benchmark.products)
    task = task_of["search"]
    session = (exchange["said"]("Hi <b>", "Hello."), exchange["shown"](task.target))
    episode = user.play(lambda: user(task, session, "Which <script>color</script>?"))
    answer(user, "  ")  # an empty answer is none
    page = user.page.value
    assert "&lt;script&gt;color" in page and "<script>" not in page and "Hi &lt;b&gt;" in page
    assert task.instruction in page and f"Shown: {task.target}" in page
    answer(user, " navy ")
    assert episode.result(timeout=10).text == "navy"
    wait_until(lambda: "The session has ended." in user.page.value)
    assert user.box.disabled and user.box.value == ""


def test_a_review_task_shows_opinion_and_published_text(in_a_notebook, world_benchmark, task_of, exchange):
    user, task = HumanUser(world_benchmark.products), task_of["review"]
    episode = user.play(lambda: user(task, (exchange["published"]("Just fine."),), "Content?"))
    answer(user, "yes")
    assert episode.result(timeout=10).text == "yes"
    assert task.review.text[:20] in user.page.value and "Published: Just fine." in user.page.value


def test_nobody_waits_for_ever(in_a_notebook, world_benchmark, task_of):
    user = HumanUser(world_benchmark.products, timeout_s=0.05)
    episode = user.play(lambda: user(task_of["search"], (), "Hello?"))
    with pytest.raises(InfrastructureError, match=r"nobody answered within 0\.05 seconds"):
        episode.result(timeout=10)
    wait_until(lambda: "nobody answered" in user.page.value)


def test_a_late_answer_is_no_answer_to_the_next_question(in_a_notebook, world_benchmark, task_of):
    user = HumanUser(world_benchmark.products)
    user.box.value = "late"
    user.button.click()
    episode = user.play(lambda: user(task_of["search"], (), "Which color?"))
    answer(user, "navy")
    assert episode.result(timeout=10).text == "navy"


def test_a_cell_that_would_wait_for_itself_says_so(in_a_notebook, world_benchmark, task_of):
    with pytest.raises(RuntimeError, match=r"play\(\.\.\.\)"):
        HumanUser(world_benchmark.products)(task_of["search"], (), "Hello?")


def test_two_episodes_take_turns(in_a_notebook, world_benchmark, task_of):
    user, answers = HumanUser(world_benchmark.products), []
    threads = [
        threading.Thread(target=lambda: answers.append(user(task_of["search"], (), "Well?").text))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for text in ("one", "two"):
        answer(user, text)
        wait_until(lambda text=text: text in answers)
    for thread in threads:
        thread.join()
    assert answers == ["one", "two"]


def test_outside_a_notebook_the_terminal_asks(monkeypatch, world_benchmark, task_of):
    prompts = []

    def ask(prompt):
        prompts.append(prompt)
        return " navy "

    monkeypatch.setattr("builtins.input", ask)
    reply = HumanUser(world_benchmark.products)(task_of["search"], (), "Which \x1b[31mcolor?")
    assert reply.text == "navy" and "Which [31mcolor?\nYou: " in prompts[0] and "\x1b" not in prompts[0]


CELL = """
from pwagents.schema import Product, Review, Task
from pwagents.users.human import HumanUser
lamp = Product(parent_asin="B0LAMP0001", title="Foldable Reading Lamp", category="Home and Kitchen")
task = Task(task_id="t", user_id="u", type="search", timestamp=1, instruction="Some light, please.",
            target="B0LAMP0001", review=Review(rating=5))
human = HumanUser({"B0LAMP0001": lamp}, timeout_s=30)
episode = human.play(lambda: human(task, (), "Which color?").text)
ids = human.box.comm.comm_id, human.button.comm.comm_id
"""


def test_in_a_real_kernel_the_browsers_messages_answer():
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        assert client.execute_interactive(CELL, timeout=60)["content"]["status"] == "ok"
        reply = client.execute("", user_expressions={"ids": "','.join(ids)"}, reply=True, timeout=60)
        box, button = reply["content"]["user_expressions"]["ids"]["data"]["text/plain"].strip("'").split(",")
        for comm, data in (
            (box, {"method": "update", "state": {"value": "navy"}, "buffer_paths": []}),
            (button, {"method": "custom", "content": {"event": "click"}}),
        ):
            message = client.session.msg("comm_msg", {"comm_id": comm, "data": data})
            client.shell_channel.send(message)
        reply = client.execute("", user_expressions={"said": "episode.result(20)"}, reply=True, timeout=60)
        assert reply["content"]["user_expressions"]["said"]["data"]["text/plain"] == "'navy'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
