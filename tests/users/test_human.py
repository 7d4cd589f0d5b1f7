"""The user at the notebook: through the widget's objects, through input(), and in a real kernel."""

import queue
import threading
import time

import pytest
from jupyter_client.manager import start_new_kernel

from pwagents.errors import InfrastructureError
from pwagents.schema import Action
from pwagents.users import human
from pwagents.users.human import LETTERS_ARRIVE_S, HumanUser
from pwagents.web.environment import WebEnvironment


@pytest.fixture
def in_a_notebook(monkeypatch):
    monkeypatch.setattr(human, "in_notebook", lambda: True)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def beside(run):
    """Run something in a thread; what it returns is put in the queue."""
    results = queue.Queue()
    threading.Thread(target=lambda: results.put(run()), daemon=True).start()
    return results


def answer(user: HumanUser, text: str) -> None:
    wait_until(lambda: not user.button.disabled)
    user.box.value = text
    user.button.click()


def scripted(*actions: Action):
    """An agent that does this, one action a step."""
    return lambda state: actions[len(state.session)]


def ask(content: str) -> Action:
    return Action(name="respond", arguments={"content": content})


def search(query: str) -> Action:
    return Action(name="search_product_by_query", arguments={"query": query})


STOP = Action(name="stop")


@pytest.fixture
def play(shop, task_of, in_a_notebook):
    """Let an agent work on a task with a human; returns the human and the episode's future."""

    def begin(task_type, *actions, timeout_s=600):
        user = HumanUser(shop.benchmark.products, timeout_s)
        environment = WebEnvironment(shop, "multi_turn", user)
        return user, user.play(environment, task_of[task_type], (), scripted(*actions))

    return begin


def test_what_is_typed_reaches_the_agent(play, task_of):
    user, episode = play("search", ask("Which <script>color</script>?"), STOP)
    answer(user, "  ")  # an empty answer is none
    page = user.page.value
    assert "&lt;script&gt;color" in page and "<script>" not in page and task_of["search"].instruction in page
    answer(user, " navy ")
    assert episode.result(timeout=60).steps[0].observation.text == "navy"
    assert user.box.disabled and user.box.value == ""


def test_enter_sends_and_leaving_the_box_does_not(play):
    user, episode = play("search", ask("Which color?"), STOP)
    wait_until(lambda: not user.box.disabled)
    user.box.value = "nav"  # half a word: nobody has pressed Enter
    time.sleep(2 * LETTERS_ARRIVE_S)
    assert not episode.done()
    user.box._handle_custom_msg({"event": "submit"}, [])
    user.box.value = "navy"  # the last letter comes behind Enter
    assert episode.result(timeout=60).steps[0].observation.text == "navy"


def test_the_page_tells_all_in_its_order_and_ends_with_the_last_answer_and_the_score(play, shop, task_of):
    target = shop.benchmark.products[task_of["search"].target]
    user, episode = play("search", ask("Color?"), search("xyzzy"), search(target.title), ask("This?"), STOP)
    answer(user, "navy")
    wait_until(lambda: "Agent: This?" in user.page.value)
    answer(user, "yes, this one")
    episode.result(timeout=60)
    parts = ["Agent: Color?", "You: navy", "  nothing", f"  {target.parent_asin}", "Agent: This?"]
    parts += [
        "You: yes, this one",
        "The session has ended after 5 steps. Result accuracy of the last attempt: ",
    ]
    places = [user.page.value.index(part, user.page.value.index("Agent: Color?")) for part in parts]
    assert places == sorted(places)
    assert "of the last attempt: 1.00, of the best one: 1.00" in user.page.value


def test_a_review_task_shows_opinion_and_published_text(in_a_notebook, world_benchmark, task_of, exchange):
    user, task = HumanUser(world_benchmark.products), task_of["review"]
    replies = beside(lambda: user(task, (exchange["published"]("Just fine."),), "Content?").text)
    answer(user, "yes")
    assert replies.get(timeout=60) == "yes"
    assert task.review.text[:20] in user.page.value and "Published: Just fine." in user.page.value


def test_nobody_waits_for_ever(play):
    user, episode = play("search", ask("Hello?"), timeout_s=0.05)
    with pytest.raises(InfrastructureError, match=r"nobody answered within 0\.05 seconds"):
        episode.result(timeout=60)
    assert "The session has ended: nobody answered" in user.page.value


def test_a_late_answer_is_no_answer_to_the_next_question(in_a_notebook, world_benchmark, task_of):
    user = HumanUser(world_benchmark.products)
    user.box.value = "late"
    user.button.click()
    replies = beside(lambda: user(task_of["search"], (), "Which color?").text)
    answer(user, "navy")
    assert replies.get(timeout=60) == "navy"


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
from concurrent.futures import ThreadPoolExecutor
from pwagents.schema import Product, Review, Task
from pwagents.users.human import HumanUser
lamp = Product(parent_asin="B0LAMP0001", title="Foldable Reading Lamp", category="Home and Kitchen")
task = Task(task_id="t", user_id="u", type="search", timestamp=1, instruction="Some light, please.",
            target="B0LAMP0001", review=Review(rating=5))
human = HumanUser({"B0LAMP0001": lamp}, timeout_s=30)
reply = ThreadPoolExecutor().submit(human, task, (), "Which color?")
while human.box.disabled:
    pass
ids = human.box.comm.comm_id, human.button.comm.comm_id
"""


@pytest.mark.parametrize(("sender", "event"), [(0, "submit"), (1, "click")])
def test_in_a_real_kernel_the_browsers_messages_answer(sender, event):
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        assert client.execute_interactive(CELL, timeout=60)["content"]["status"] == "ok"
        reply = client.execute("", user_expressions={"ids": "','.join(ids)"}, reply=True, timeout=60)
        ids = reply["content"]["user_expressions"]["ids"]["data"]["text/plain"].strip("'").split(",")
        for comm, data in (
            (ids[0], {"method": "update", "state": {"value": "navy"}, "buffer_paths": []}),
            (ids[sender], {"method": "custom", "content": {"event": event}}),
        ):
            message = client.session.msg("comm_msg", {"comm_id": comm, "data": data})
            client.shell_channel.send(message)
        reply = client.execute("", user_expressions={"said": "reply.result(20).text"}, reply=True, timeout=60)
        assert reply["content"]["user_expressions"]["said"]["data"]["text/plain"] == "'navy'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
