"""A user played by whoever sits at the notebook."""

import html
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from pwagents.errors import InfrastructureError
from pwagents.schema import Product, Step, Task, Trajectory
from pwagents.shop.environment import Agent, Environment, UserReply, compact_text
from pwagents.users.rules import is_result, is_review

# Enter reaches the kernel at once, while the last letters typed may still be on their way: the browser waits
# for the kernel's answer to one change before it sends the next.
LETTERS_ARRIVE_S = 0.3


class HumanUser:
    """Shows what the agent says in a notebook, and waits for an answer in a box.

    A notebook gets nothing from the box while a cell runs. :meth:`play` runs the episode in another thread::

        human = HumanUser(benchmark.products)
        episode = human.play(Environment(shop, task, "multi_turn", user=human), agent, grade)

    Look at ``episode.result()`` in a later cell, once the box says that the session has ended.

    Attributes:
        timeout_s: how long to wait for each answer.
        widget: what the notebook displays: ``page`` (the conversation), ``box`` and ``button``. Enter in the
            box sends the answer, as the button does.
    """

    def __init__(self, products: Mapping[str, Product], timeout_s: float = 600):
        from ipywidgets import HTML, Button, HBox, Text, VBox

        self.products, self.timeout_s = products, timeout_s
        self._answers: queue.Queue[str] = queue.Queue()
        self._turn = threading.Lock()  # one box, one conversation at a time
        self.page = HTML("The agent has not said anything yet.")
        self.box = Text(placeholder="your answer", disabled=True)
        self.button = Button(description="Send", disabled=True)
        self.box.on_msg(self._receive)
        self.button.on_click(lambda _: self._send())
        self.widget = VBox([self.page, HBox([self.box, self.button])])

    def __call__(self, task: Task, session: tuple[Step, ...], says: str) -> UserReply:
        """Ask the human.

        Raises:
            InfrastructureError: nobody answered in time.
            RuntimeError: called from the notebook's own thread, where no answer could arrive.
        """
        # The box reaches the main thread, which gets nothing while it waits here.
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError(
                "a cell cannot wait for its own input box; run the episode with HumanUser.play(...)"
            )
        with self._turn:
            lines = [*self._lines(task, session), f"Agent: {says}"]
            self._show(lines)
            self._answers = queue.Queue()  # what came too late for the last question is no answer to this one
            self.box.disabled = self.button.disabled = False
            try:
                answer = self._answers.get(timeout=self.timeout_s)
            except queue.Empty:
                message = f"nobody answered within {self.timeout_s:g} seconds"
                raise InfrastructureError(message) from None
            finally:
                self.box.disabled = self.button.disabled = True
            self._show([*lines, f"You: {answer}", "", "(The agent is at work.)"])
            return UserReply(answer)

    def play(
        self, environment: Environment, agent: Agent, grade: Callable[[Trajectory], Any]
    ) -> "Future[Trajectory]":
        """Display the box, and play an episode of the multi-turn track in a thread of its own.

        Args:
            grade: :func:`pwagents.shop.score.grade`, for the score that the box shows at the end.

        Returns:
            What will hold the trajectory, or what was raised.
        """
        from IPython.display import display

        task = environment.task
        self._show([*self._lines(task, ()), "", "(The agent is at work.)"])
        display(self.widget)
        future: Future[Trajectory] = Future()

        def run() -> None:
            try:
                trajectory = environment.play(agent)
                graded = grade(trajectory)
                score = (
                    f"The session has ended after {graded.steps} steps. Result accuracy of the last attempt: "
                    f"{graded.result_final:.2f}, of the best one: {graded.result_official:.2f}."
                )
                self._show([*self._lines(task, trajectory.steps), "", score])
                future.set_result(trajectory)
            except Exception as error:
                self.page.value += f"<p><b>{html.escape(f'The session has ended: {error}')}</b></p>"
                future.set_exception(error)

        # A daemon: a notebook that runs from end to end must not wait for somebody who is not there.
        threading.Thread(target=run, daemon=True).start()
        return future

    def _receive(self, _widget, content: Mapping[str, str], _buffers) -> None:
        """Read a message of the box.

        ``Text.on_submit`` is deprecated, and what should replace it (observe the value, with
        ``continuous_update=False``) also fires when somebody clicks elsewhere with half a sentence written.
        """
        if content.get("event") == "submit":
            threading.Timer(LETTERS_ARRIVE_S, self._send).start()

    def _send(self) -> None:
        if answer := self.box.value.strip():
            self.box.value = ""
            self._answers.put(answer)

    def _show(self, lines: Sequence[str]) -> None:
        text = html.escape("\n".join(lines))
        self.page.value = f"<pre style='white-space: pre-wrap'>{text}</pre>"

    def _lines(self, task: Task, session: Sequence[Step]) -> Iterator[str]:
        """Yield all that the human needs, in the order in which it happened: role, talk, results."""
        yield f"You want (do not say its name): {compact_text(self.products[task.target])}"
        if task.type == "review":
            yield f"Your opinion: {task.review.rating:g} stars. {task.review.text}"
        yield from ["", f"You: {task.instruction}"]
        for step in session:
            if step.is_talk:
                yield f"Agent: {step.action.arguments['content']}"
                yield f"You: {step.observation.text}"
            elif is_review(step):
                yield f"Published: {step.action.arguments['review']}"
            elif is_result(step) and step.action.name != "stop":
                products = [compact_text(self.products[asin]) for asin in step.observation.products]
                yield from ["The shop shows:", *(f"  {line}" for line in products or ["nothing"])]
