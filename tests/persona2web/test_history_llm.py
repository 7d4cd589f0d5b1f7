"""Histories by a language model: the same types, whatever the model replies."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from pwagents.llm.chat import ChatModel, Reply
from pwagents.persona2web.domains import domains
from pwagents.persona2web.history import NOW
from pwagents.persona2web.history_llm import LlmHistorian
from pwagents.persona2web.settings import HistorySettings

SETTINGS = HistorySettings(n_users=2, records=80, n_domains=2)


class Writer(ChatModel):
    """Plays the model; ``spoil`` changes a reply, given how often the same conversation began."""

    name = "writer"

    def __init__(self, spoil=lambda text, repaired: text):
        self.spoil = spoil

    def reply(self, request):
        prompt, repaired = request.messages[0]["content"], len(request.messages) > 1
        return Reply(text=self.spoil(json.dumps(self._answer(prompt, request.sample)), repaired))

    def _answer(self, prompt, sample):
        if "Invent one ordinary" in prompt:
            name = ["Ada Byron", "Joe Doe"][sample % 2]
            return {"name": name, "age": 33, "occupation": "nurse", "domains": ["flights", "cinema"]}
        if "The options" in prompt:
            options = json.loads(prompt.split("The options: ")[1])
            return {name: values[0] for name, values in options.items()}
        if "Invent" in prompt:
            n = int(re.search(r"Invent (\d+) things", prompt)[1])
            return {"seeds": [f"trip {i}" for i in range(n)]}
        return {
            "records": [
                {"type": "web search", "object": "somewhere warm", "shows": ""},
                {"type": "booking", "object": "seat 14A", "shows": "seat"},
            ]
        }


def test_a_history_has_records_and_preferences_with_their_support():
    historian = LlmHistorian(Writer(), SETTINGS, seed=1)
    histories = historian.histories()
    assert histories.keys() == {"Ada_Byron", "Joe_Doe"}
    assert not historian.failures.total()
    for history in histories.values():
        times = [event.timestamp for event in history.events]
        assert times == sorted(times)
        assert times[-1] < NOW
        wants = {(p.domain, p.facet): p for p in history.preferences}
        assert wants["flights", "seat"].value == "window"
        assert wants["flights", "seat"].support
        assert wants["flights", "website"].support
        noisy = {event.event_id for event in history.events if event.object.startswith("cancelled")}
        assert not noisy & set(wants["flights", "seat"].support)


@pytest.mark.parametrize("bad", ["", "no JSON", "[1]", "{}", '{"records": 3}', "```json\n{"])
def test_a_reply_that_cannot_be_used_is_sent_back_once(bad):
    historian = LlmHistorian(Writer(lambda text, repaired: text if repaired else bad), SETTINGS, seed=1)
    assert len(historian.histories()) == 2
    assert historian.failures["repaired"] > 4
    assert historian.failures["unusable"] == 0


def test_users_and_events_that_never_come_are_left_out():
    historian = LlmHistorian(Writer(lambda text, repaired: "no"), SETTINGS, seed=1)
    assert historian.histories() == {}
    assert historian.failures["unusable"] == 2


def test_a_fenced_reply_is_read():
    writer = Writer(lambda text, repaired: f"```json\n{text}\n```")
    assert len(LlmHistorian(writer, SETTINGS, seed=1).histories()) == 2


@examples(max_examples=10)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda e: (
            st.lists(e)
            | st.dictionaries(
                st.sampled_from(["name", "age", "occupation", "domains", "seeds", "records", *domains()]), e
            )
        ),
        max_leaves=8,
    )
)
def test_no_reply_breaks_it(content):
    LlmHistorian(Writer(lambda text, repaired: json.dumps(content)), SETTINGS, seed=1).histories()
