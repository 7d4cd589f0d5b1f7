"""Actions of web agents as text, and a visit in the form of one architecture: ``observe`` and ``act``."""

import re

from pwagents.persona2web.driver import ActionError, Driver
from pwagents.persona2web.observe import observe
from pwagents.persona2web.types import Architecture

# Name -> its arguments; those after a "?" may be left out. Actions that touch no page (note, stop, plans, the
# memory) are the agent's own.
FORMS: dict[Architecture, dict[str, tuple[str, ...]]] = {
    "occam": {"click": ("id",), "type": ("id", "text", "?enter"), "go_back": ()},
    "indexed": {
        "click": ("id",),
        "type": ("id", "text", "?enter"),
        "select": ("id", "text"),
        "go_to": ("text",),
        "go_back": (),
    },
}

_TEXT = r"(?:[^\[\]]|\[[^\[\]]*\])*"  # holds no bracket, or pairs of them


class Visit:
    """One architecture's view of a driver, on which a visit has begun."""

    def __init__(self, driver: Driver, architecture: Architecture):
        self.driver, self.architecture = driver, architecture

    def observe(self) -> str:
        """The open page as text."""
        return observe(self.driver.page, self.architecture)

    def act(self, action: str) -> str:
        """Do one action, such as ``click [12]`` or ``type [3] [blue shoes]``.

        Returns:
            Why it could not be done; an empty text where it was.
        """
        try:
            name, arguments = read_action(action, self.architecture)
            getattr(self.driver, name)(*arguments)
        except ActionError as error:
            return str(error)
        return ""


def read_action(action: str, architecture: Architecture) -> tuple[str, list[int | str | bool]]:
    """Name and arguments of an action.

    The last argument of ``type`` says whether to press Enter: ``[1]`` or ``[0]``, which is taken where it is
    left out. A text may hold brackets, as long as each that is opened is closed.

    Raises:
        ActionError: the text is no action of the architecture; the message says what was expected.
    """
    action = action.encode("utf-8", "replace").decode()  # a model's JSON can hold half a character
    forms, (name, texts) = FORMS[architecture], split_action(action)
    if name not in forms:
        known = ", ".join(_shape(name, form) for name, form in forms.items())
        raise ActionError(f"{action.strip()[:200]!r} is no action; actions are: {known}")
    form = forms[name]
    needed = [kind for kind in form if not kind.startswith("?")]
    if not len(needed) <= len(texts) <= len(form):
        raise ActionError(f"{action.strip()[:200]!r} has {len(texts)} arguments; write {_shape(name, form)}")
    return name, [_argument(kind, text) for kind, text in zip(form, texts, strict=False)]


def split_action(action: str) -> tuple[str, list[str]]:
    """Name, in small letters, and bracketed texts: ``Type [3][blue]`` is ("type", ["3", "blue"]).

    The name is empty where the text has no such form.
    """
    found = re.fullmatch(rf"\s*(\w+)((?:\s*\[{_TEXT}\])*)\s*", action)
    return (found[1].lower(), re.findall(rf"\[({_TEXT})\]", found[2])) if found else ("", [])


def _argument(kind: str, text: str) -> int | str | bool:
    text = text.strip()
    if kind == "text":
        return text
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise ActionError(
            f"[{text[:60]}] is no number of an element" if kind == "id" else "Enter is [1] or [0]"
        )
    return int(text) if kind == "id" else text == "1"


def _shape(name: str, form: tuple[str, ...]) -> str:
    words = {"id": "[number]", "text": "[text]", "?enter": "[1 for Enter]"}
    return " ".join([name, *(words[kind] for kind in form)])
