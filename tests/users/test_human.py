"""The user at the notebook: through the widget's objects, and in a real kernel."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from jupyter_client.manager import start_new_kernel

from pwagents.errors import InfrastructureError
from pwagents.schema import Action
from pwagents.shop.environment import Environment
from pwagents.shop.score import grade
from pwagents.users.human import HumanUser

from .conftest import review

STOP = Action(name="stop")


def ask(content: str) -> Action:
    return Action(name="respond", arguments={"content": content})


def search(query: str) -> Action:
    return Action(name="search_product_by_query", arguments={"query": query})


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answer(user: HumanUser, text: str) -> None:
    wait_until(lambda: not user.button.disabled)
    user.box.value = text
    user.button.click()


@pytest.fixture
def play(shop, task_of):
    """Let an agent do this, one action a step, with a human; returns the human and the episode's future."""

    def begin(*actions, timeout_s=600):
        user = HumanUser(shop.benchmark.products, timeout_s)
        environment = Environment(shop, task_of["search"], "multi_turn", user=user, history=())
        return user, user.play(environment, lambda state: actions[len(state.session)], grade)

    return begin


def test_the_page_tells_all_in_its_order_and_ends_with_the_last_answer_and_the_score(play, shop, task_of):
    target = shop.benchmark.products[task_of["search"].target]
    user, episode = play(ask("<script>Color?"), search("xyzzy"), search(target.title), ask("This?"), STOP)
    answer(user, "  ")  # an empty answer is none
    answer(user, " navy ")
    wait_until(lambda: "Agent: This?" in user.page.value)
    answer(user, "yes, this one")
    assert episode.result(timeout=60).steps[0].observation.text == "navy"
    page = user.page.value
    parts = ["Agent: &lt;script&gt;Color?", "You: navy", "  nothing", f"  {target.parent_asin}"]
    parts += ["Agent: This?", "You: yes, this one", "The session has ended after 5 steps."]
    parts += ["of the last attempt: 1.00"]
    places = [page.index(part, page.index("Agent: &lt;script&gt;Color?")) for part in parts]
    assert places == sorted(places) and "of the best one: 1.00" in page


def test_an_error_at_the_end_is_told_and_nobody_waits_for_ever(shop, task_of):
    user = HumanUser(shop.benchmark.products)
    environment = Environment(shop, task_of["search"], "multi_turn", user=user, history=())
    episode = user.play(environment, lambda state: STOP, lambda trajectory: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        episode.result(timeout=60)
    assert "The session has ended: division by zero" in user.page.value


def test_two_conversations_take_turns_a_late_answer_is_none_and_nobody_waits_for_ever(play, shop, task_of):
    user, episode = play(ask("Hello?"), timeout_s=0.05)
    with pytest.raises(InfrastructureError, match=r"nobody answered within 0\.05 seconds"):
        episode.result(timeout=60)
    assert "The session has ended: nobody answered" in user.page.value
    user, task = HumanUser(shop.benchmark.products), task_of["review"]
    user.box.value = "late"
    user.button.click()
    with ThreadPoolExecutor(2) as threads:
        replies = [threads.submit(user, task, (review("Just fine."),), "Content?") for _ in range(2)]
        for text in ("one", "two"):
            answer(user, text)
            wait_until(lambda text=text: any(r.done() and r.result().text == text for r in replies))
    assert {reply.result().text for reply in replies} == {"one", "two"}
    assert task.review.text[:20] in user.page.value and "Published: Just fine." in user.page.value


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

    def value(expression):
        options = {"user_expressions": {"value": expression}, "reply": True, "timeout": 60}
        reply = client.execute("", **options)["content"]["user_expressions"]["value"]
        return reply["data"]["text/plain"].strip("'")

    try:
        assert client.execute_interactive(CELL, timeout=60)["content"]["status"] == "ok"
        ids = value("','.join(ids)").split(",")
        for comm, data in (
            (ids[0], {"method": "update", "state": {"value": "nav"}, "buffer_paths": []}),
            (ids[sender], {"method": "custom", "content": {"event": event}}),
            (ids[0], {"method": "update", "state": {"value": "navy"}, "buffer_paths": []}),
        )[:: 1 if event == "submit" else -1]:  # the last letter may come behind Enter, which waits for it
            message = client.session.msg("comm_msg", {"comm_id": comm, "data": data})
            client.shell_channel.send(message)
        assert value("reply.result(20).text") == "navy"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
