"""Many requests at once: all are answered in order, and one refusal costs the others nothing."""

import pytest

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.llm.chat import ChatModel, Reply, Request, ask_all


class Echo(ChatModel):
    """Says the request's text; refuses "no", and is out of reach for "gone"."""

    name = "echo"

    def __init__(self, workers, batch_size):
        self.workers, self.batch_size = workers, batch_size
        self.asked = []

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


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 1), (3, 1), (1, 4)])
def test_replies_come_in_order_and_refusals_are_none(workers, batch_size):
    texts = [str(i) if i % 7 else "no" for i in range(40)]
    replies = ask_all(Echo(workers, batch_size), requests(texts), "asking")
    assert [reply and reply.text for reply in replies] == [t if t != "no" else None for t in texts]


@pytest.mark.parametrize("workers", [1, 4])
def test_a_refusal_does_not_make_its_neighbours_cost_twice(workers):
    model, texts = Echo(workers, 1), [*map(str, range(15)), "no"]
    ask_all(model, requests(texts), "asking")
    assert sorted(model.asked) == sorted(texts)


def test_nothing_asked_is_nothing_answered():
    assert ask_all(Echo(1, 1), [], "asking") == []


def test_a_model_out_of_reach_stops_it():
    with pytest.raises(InfrastructureError, match="no route"):
        ask_all(Echo(2, 1), requests(["a", "gone"]), "asking")
