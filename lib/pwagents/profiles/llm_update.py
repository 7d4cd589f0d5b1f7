"""The dynamic profile update by a language model (Orion, section 4.2)."""

import json
import threading
from collections.abc import Mapping, Sequence

from pwagents.llm.chat import ChatModel, Message
from pwagents.llm.fence import fence
from pwagents.profiles.prompts import UPDATE
from pwagents.profiles.replies import UpdateReply, read_reply
from pwagents.profiles.types import ContextualProfile, ProfileLine
from pwagents.profiles.update import Update, last_shown, settle
from pwagents.schema import Product, Step

SAMPLING = {"temperature": 0.0, "max_tokens": 800}
_RESULTS = 10  # products of a result that are told
_OBSERVATION = 2000  # characters of an observation without products


class LlmUpdater:
    """Lets a language model edit the contextual profile after each step.

    A reply that cannot be read leaves the profile as it was, and is counted. Whatever the model does, a
    stated wish overrides other wishes about its attribute (:func:`pwagents.profiles.update.settle`), and a
    line that it calls history without its being so is taken as inferred.

    Args:
        model: the updater.
        products: the catalogue.

    Attributes:
        malformed: how many replies could not be read.
    """

    def __init__(self, model: ChatModel, products: Mapping[str, Product]):
        self.model, self.products, self.malformed = model, products, 0
        self._lock = threading.Lock()

    def __call__(self, profile: ContextualProfile, instruction: str, session: Sequence[Step]) -> Update:
        """P_ctx,t from P_ctx,t-1 and the session so far, whose last step is the new one.

        Raises:
            InfrastructureError: the model cannot be reached.
            NotEvaluableError: the model or its provider refuses the request.
        """
        if not session or session[-1].error:
            return Update(profile)
        reply = self.model.complete(self.messages(profile, instruction, session), **SAMPLING)
        try:
            edited = read_reply(reply, UpdateReply)
        except ValueError:
            with self._lock:
                self.malformed += 1
            return Update(profile, reply.usage)
        return Update(_merge(profile, edited.lines), reply.usage)

    def messages(
        self, profile: ContextualProfile, instruction: str, session: Sequence[Step]
    ) -> list[Message]:
        """The request to the model."""
        lines = [line.model_dump(include={"text", "positive", "provenance"}) for line in profile.lines]
        parts = [
            f"The customer's request:\n{fence(instruction)}",
            f"The profile so far:\n{fence(json.dumps({'lines': lines}, ensure_ascii=False))}",
            *self._tell_step(session),
        ]
        return [{"role": "system", "content": UPDATE}, {"role": "user", "content": "\n\n".join(parts)}]

    def _tell_step(self, session: Sequence[Step]) -> list[str]:
        """The last step; where it is talk, also what the shop showed before."""
        step = session[-1]
        if step.action.name != "respond":
            call = f"{step.action.name}({json.dumps(step.action.arguments, ensure_ascii=False)})"
            seen = step.observation.products
            return [f"The assistant called:\n{fence(call)}", f"What came of it:\n{self._show(step, seen)}"]
        shown = last_shown(session)
        seen_before = [f"What the shop had shown last:\n{self._show(step, shown)}"] if shown else []
        said = str(step.action.arguments.get("content", ""))
        return [
            *seen_before,
            f"The assistant said:\n{fence(said)}",
            f"The customer answered:\n{fence(step.observation.text)}",
        ]

    def _show(self, step: Step, asins: Sequence[str]) -> str:
        """Products in a line each, or the observation's own text where it shows none."""
        known = [self.products[asin] for asin in asins[:_RESULTS] if asin in self.products]
        lines = [
            f"{p.title} (by {p.store or 'unknown'}, {'no price' if p.price is None else f'${p.price:.2f}'})"
            for p in known
        ]
        return fence("\n".join(lines) if lines else step.observation.text[:_OBSERVATION])


def _merge(before: ContextualProfile, lines: Sequence[ProfileLine]) -> ContextualProfile:
    """The edited lines with ``about`` read off their texts, and the overriding rules applied."""
    known = {(line.text, line.positive): line.provenance for line in before.lines}
    checked = [
        ProfileLine.of(line.text, line.positive, _provenance(line, known.get((line.text, line.positive))))
        for line in lines
    ]
    stated = [line for line in checked if line.provenance == "stated"]
    others = [line for line in checked if line.provenance != "stated"]
    return settle(ContextualProfile(lines=tuple(others)), stated)


def _provenance(line: ProfileLine, before: str | None):
    return "inferred" if line.provenance == "history" and before != "history" else line.provenance
