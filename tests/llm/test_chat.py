"""What a request is known by, and many requests at once."""

import pytest

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.llm.chat import ChatModel, Reply, Request, alternating, ask_all

REQUEST = Request(
    messages=({"role": "user", "content": "a coat"},),
    tools=({"b": 1, "a": 2},),
    sampling={"temperature": 0.6},
)


class Echo(ChatModel):
    """Says the request's text; refuses "no", and is out of reach for "gone"."""

    name = "echo"

    def __init__(self, workers=1, batch_size=1):
        self.workers, self.batch_size, self.asked = workers, batch_size, []

    def reply(self, request):
        text = request.messages[0]["content"]
        self.asked.append(text)
        if text == "no":
            raise NotEvaluableError("too long")
        if text == "gone":
            raise InfrastructureError("no route")
        return Reply(text=text)


def requests(texts):
    return [Request(messages=({"role": "user", "content": text},)) for text in texts]


def test_keys_of_published_replies_stay():
    """Another hash here makes every stored reply unfindable: change it only with a way to take them over."""
    assert REQUEST.key("m") == "2850e3b492c763f187b60481489f82ba8199c1ab07553d46af648e3f02271c24"
    other = REQUEST.model_copy(update={"tools": ({"a": 2, "b": 1},)})
    assert other.key("m") == REQUEST.key("m") != REQUEST.key("n")


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 1), (3, 1), (1, 4)])
def test_replies_come_in_order_and_refusals_are_none(workers, batch_size):
    texts = [str(i) if i % 7 else "no" for i in range(40)]
    replies = ask_all(model := Echo(workers, batch_size), requests(texts), "asking")
    assert [reply and reply.text for reply in replies] == [t if t != "no" else None for t in texts]
    assert batch_size > 1 or sorted(model.asked) == sorted(texts)  # a refusal costs its neighbours nothing


def test_a_model_out_of_reach_stops_it():
    model = Echo(2)
    with pytest.raises(InfrastructureError, match="no route"):
        ask_all(model, requests(["a", "gone", *map(str, range(60))]), "asking")
    assert len(model.asked) < 20


def test_roles_are_made_user_and_assistant_in_turns():
    system, said = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    asked = {"role": "assistant", "content": "Yes?"}
    assert alternating([system, said, asked]) == [{"role": "user", "content": "Be brief.\n\nHi"}, asked]
    assert alternating([system, asked]) == [{"role": "user", "content": "Be brief."}, asked]
    assert alternating([said, asked]) == [said, asked]
    assert alternating([system, said, said]) == [{"role": "user", "content": "Be brief.\n\nHi\n\nHi"}]
    call = {**asked, "tool_calls": [{"id": "c"}]}
    assert alternating([said, call, asked]) == [said, call, asked]
