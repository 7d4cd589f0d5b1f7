"""A user played by whoever sits at the notebook."""

import html
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from pwagents.errors import InfrastructureError
from pwagents.schema import Product, Task
from pwagents.users.session import conversation, last_review, last_shown
from pwagents.web.environment import Exchange, UserReply
from pwagents.web.functions import compact_text

Result = TypeVar("Result")


class HumanUser:
    """Shows what the agent says and waits for an answer: a box in a notebook, ``input()`` elsewhere.

    A notebook cannot hear the box while a cell runs. Let the episode run beside it::

        human = HumanUser(benchmark.products)
        episode = human.play(
            lambda: run_episode(WebEnvironment(shop, "multi_turn", human), task, history, agent)
        )

    and look at ``episode.result()`` in a later cell, once the box says that the session has ended.

    Args:
        products: the catalogue.
        timeout_s: how long to wait for each answer in a notebook.

    Attributes:
        widget: what the notebook displays: ``page`` (the conversation), ``box`` and ``button`` ("Send").
    """

    def __init__(self, products: Mapping[str, Product], timeout_s: float = 600):
        from ipywidgets import HTML, Button, HBox, Text, VBox

        self.products, self.timeout_s = products, timeout_s
        self._answers: queue.Queue[str] = queue.Queue()
        self._turn = threading.Lock()  # one box, one conversation at a time
        self.page = HTML("The agent has not said anything yet.")
        self.box = Text(placeholder="your answer", disabled=True)
        self.button = Button(description="Send", disabled=True)
        self.button.on_click(self._send)
        self.widget = VBox([self.page, HBox([self.box, self.button])])

    def __call__(self, task: Task, session: tuple[Exchange, ...], says: str) -> UserReply:
        """The human's answer.

        Raises:
            InfrastructureError: nobody answered in time.
            RuntimeError: called from the notebook's own thread, where no answer could arrive.
        """
        with self._turn:
            script = self._script(task, session, says)
            if not in_notebook():
                return UserReply(input(f"{_printable(script)}\nYou: ").strip() or "...")
            if threading.current_thread() is threading.main_thread():
                raise RuntimeError("the cell would wait for itself; run the episode with HumanUser.play(...)")
            return UserReply(self._wait(script))

    def play(self, run: Callable[[], Result]) -> "Future[Result]":
        """Display the box and run an episode beside it; the future holds what ``run`` returns or raises."""
        from IPython.display import display

        display(self.widget)
        future: Future[Result] = Future()
        threading.Thread(target=self._run, args=(run, future), daemon=True).start()
        return future

    def _run(self, run: Callable[[], Result], future: "Future[Result]") -> None:
        try:
            future.set_result(run())
            ending = "The session has ended."
        except Exception as error:
            future.set_exception(error)
            ending = f"The session has ended: {error}"
        self.page.value += f"<p><b>{html.escape(ending)}</b></p>"

    def _wait(self, script: str) -> str:
        self.page.value = f"<pre style='white-space: pre-wrap'>{html.escape(script)}</pre>"
        self._answers = queue.Queue()  # what came too late for the last question is no answer to this one
        self.box.disabled = self.button.disabled = False
        try:
            return self._answers.get(timeout=self.timeout_s)
        except queue.Empty:
            message = f"nobody answered within {self.timeout_s:g} seconds"
            raise InfrastructureError(message) from None
        finally:
            self.box.disabled = self.button.disabled = True

    def _send(self, _button) -> None:
        if answer := self.box.value.strip():
            self.box.value = ""
            self._answers.put(answer)

    def _script(self, task: Task, session: tuple[Exchange, ...], says: str) -> str:
        """All that the human needs: the role, the conversation so far, what the shop shows."""
        lines = [f"You want (do not say its name): {compact_text(self.products[task.target])}"]
        if task.type == "review":
            lines += [f"Your opinion: {task.review.rating:g} stars. {task.review.text}"]
        lines += ["", f"You: {task.instruction}"]
        for said, answer in conversation(session):
            lines += [f"Agent: {said}", f"You: {answer}"]
        lines += [f"Shown: {compact_text(self.products[asin])}" for asin in last_shown(session) or ()]
        if review := last_review(task, session):
            lines += [f"Published: {review}"]
        return "\n".join([*lines, f"Agent: {says}"])


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel."""
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _printable(text: str) -> str:
    """Without the control characters that could command a terminal."""
    return "".join(c for c in text if c.isprintable() or c == "\n")
