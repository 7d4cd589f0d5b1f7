"""Models behind an endpoint: what is sent, what comes back, which failures are tried again."""

import asyncio
import json
import logging
import time
import traceback
from email.utils import formatdate

import pytest

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.llm import openai_model
from pwagents.llm.chat import Request, ToolCall
from pwagents.llm.failures import ContentFilterError, ContextTooLongError, EndpointError, RefusedError
from pwagents.llm.openai_model import OpenAIModel
from pwagents.schema import Usage

from .server import completion, error

KEY = "sk-test-0123456789abcdef"
HI = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}


@pytest.fixture(autouse=True)
def a_key_and_short_waits(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.002)


def model_at(server, name="gpt-4o-mini", **options):
    return OpenAIModel(name, server.url, **options)


def answer(**message):
    return completion("key", {"model": "m", "messages": HI}, {"role": "assistant", "content": None} | message)


def call(arguments, name="search"):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_request_is_sent_as_it_is(chat_server):
    server = chat_server()
    model_at(server).complete(HI, [TOOL], temperature=0.6, max_tokens=5, top_k=3)
    (body,) = server.bodies
    assert body == {
        "model": "gpt-4o-mini",
        "messages": HI,
        "tools": [TOOL],
        "temperature": 0.6,
        "max_tokens": 5,
        "top_k": 3,
    }
    assert server.headers["authorization"] == f"Bearer {KEY}"


def test_a_text_in_parts_is_read(chat_server):
    server = chat_server()
    server.then(answer(content=[{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]))
    assert model_at(server).complete(HI).text == "hello"
    assert sum(server.calls.values()) == 1


def test_samples_of_a_seeded_request_have_seeds_of_their_own(chat_server):
    server = chat_server()
    for sample in (0, 1):
        model_at(server).complete(HI, sample=sample, seed=5)
    assert [body["seed"] for body in server.bodies] == [5, 6]


def test_a_text_and_its_cost(chat_server):
    server = chat_server()
    server.then(
        answer(content="hello") | {"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 100_000}}
    )
    reply = model_at(server).complete(HI)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("hello", (), "stop")
    assert reply.usage.usd == pytest.approx(0.15 + 0.06)
    assert reply.usage == Usage(
        calls=1, prompt_tokens=1_000_000, completion_tokens=100_000, usd=reply.usage.usd
    )


def test_a_tool_call_comes_as_the_model_wrote_it(chat_server):
    server = chat_server()
    server.then(answer(tool_calls=[call('{"query": "a co')]))
    reply = model_at(server).complete(HI, [TOOL])
    assert reply.tool_calls == (ToolCall(id="c1", name="search", arguments='{"query": "a co'),)
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("message", "reason", "expected"),
    [
        ({"content": ""}, "stop", ("", "stop")),
        ({"content": "cut of"}, "length", ("cut of", "length")),
        ({"content": None}, "content_filter", ("", "content_filter")),
        ({"content": "half \ud83d"}, "eos", ("half ?", "stop")),
    ],
)
def test_unusable_replies_are_returned(chat_server, message, reason, expected):
    server = chat_server()
    body = answer(**message)
    body["choices"][0]["finish_reason"] = reason
    server.then(body)
    reply = model_at(server).complete(HI)
    assert (reply.text, reply.finish_reason) == expected
    assert sum(server.calls.values()) == 1


def test_half_a_surrogate_pair_can_be_sent(chat_server):
    server = chat_server()
    model_at(server).complete([{"role": "user", "content": "half \ud83d"}])
    assert server.bodies[0]["messages"][0]["content"] == "half ?"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(chat_server, status):
    server = chat_server()
    server.then(error("later"), status)
    server.then("<html>bad gateway", status, content_type="text/html")
    assert model_at(server).complete(HI).text.startswith("reply")
    assert sum(server.calls.values()) == 3


@pytest.mark.parametrize(
    "body", ['{"choices": [', "", "[1]", '{"choices": []}', '{"error": {"code": 502}}', "null"]
)
def test_an_answer_that_is_no_chat_completion_is_tried_again(chat_server, body):
    server = chat_server()
    server.then(body)
    assert model_at(server).complete(HI).text.startswith("reply")


def test_a_time_out_is_tried_again_with_fewer_calls_at_once(chat_server):
    server = chat_server()
    server.then(answer(content="late"), delay=3.0)
    model = model_at(server, timeout_s=1.0, workers=8)
    assert model.complete(HI).text.startswith("reply")
    assert model.limiter.slots == 4


def test_nobody_listening_ends_as_an_endpoint_error(chat_server):
    server = chat_server()
    model = OpenAIModel("m", "http://127.0.0.1:9/v1", attempts=2)
    with pytest.raises(EndpointError, match=r"^m at 127.0.0.1: attempt 2 of 2: no connection \(.*refused"):
        model.complete(HI)
    assert not server.calls


@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "0.4"},
        {"retry_after_ms": "400"},
        {"retry_after": lambda: formatdate(time.time() + 1.99, usegmt=True)},
    ],
)
def test_retry_after_is_honoured(chat_server, headers):
    server = chat_server()
    headers = {name: value() if callable(value) else value for name, value in headers.items()}
    server.then(error("slow down"), 429, **headers)
    model_at(server).complete(HI)
    first, second = server.arrivals
    assert 0.39 <= second - first < 60


def test_a_server_that_asks_for_an_hour_is_given_up(chat_server):
    server = chat_server()
    server.then(error("slow down"), 429, retry_after="3600")
    with pytest.raises(EndpointError, match="slow down; it asks to wait 3,600 s"):
        model_at(server).complete(HI)


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (400, error("temperature must be a number"), RefusedError, "temperature must be a number"),
        (401, error("Incorrect API key"), RefusedError, "HTTP 401: Incorrect API key"),
        (402, error("Insufficient Balance"), RefusedError, "Insufficient Balance"),
        (403, error("not in your country"), RefusedError, "not in your country"),
        (404, error("The model `m` does not exist"), RefusedError, "does not exist"),
        (404, {"detail": "Not Found"}, RefusedError, "HTTP 404: Not Found"),
        (501, error("no such thing here"), RefusedError, "HTTP 501: no such thing here"),
        (429, error("Request too large: Limit 30000", "rate_limit_exceeded"), ContextTooLongError, "30000"),
        (429, error("pay first", "insufficient_quota"), RefusedError, "pay first"),
        (400, error("too long", "context_length_exceeded"), ContextTooLongError, "too long"),
        (400, error("maximum context length is 8192 tokens"), ContextTooLongError, "8192"),
        (400, error("exceeds the available context size"), ContextTooLongError, "available"),
        (400, error("prompt is too long: 9 tokens > 8 maximum"), ContextTooLongError, "9 tokens"),
        (400, error("no", "content_filter"), ContentFilterError, "no"),
        (400, error("Content Exists Risk"), ContentFilterError, "Risk"),
    ],
)
def test_what_never_passes_is_told_in_one_line_and_not_tried_again(chat_server, status, body, kind, told):
    server = chat_server()
    server.then(body, status)
    with pytest.raises(kind) as caught:
        model_at(server).complete(HI)
    assert told in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith("gpt-4o-mini at 127.0.0.1: HTTP")
    assert sum(server.calls.values()) == 1
    assert isinstance(caught.value, (InfrastructureError, NotEvaluableError))


@pytest.mark.parametrize("code", [401, 402])
def test_a_refusal_in_a_good_answer_is_final(chat_server, code):
    server = chat_server()
    server.then({"error": {"code": code, "message": "User not found."}})
    with pytest.raises(RefusedError, match=r"^gpt-4o-mini at 127.0.0.1: .*User not found"):
        model_at(server).complete(HI)
    assert sum(server.calls.values()) == 1


def test_it_gives_up_after_the_last_attempt(chat_server):
    server = chat_server()
    for _ in range(3):
        server.then(error("broken " + "x" * 1000 + "\nline"), 500)
    with pytest.raises(EndpointError) as caught:
        model_at(server, attempts=3).complete(HI)
    assert "attempt 3 of 3: HTTP 500: broken xxx" in str(caught.value)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_mixed_faults_do_not_show(chat_server):
    server = chat_server(faults=0.2, seed=3, hang=3.0)
    model = model_at(server, timeout_s=1.0, workers=16)
    requests = [Request(messages=({"role": "user", "content": f"task {i}"},)) for i in range(120)]
    replies = model.replies(requests)
    assert [reply.text for reply in replies] == [
        server.reply({"messages": list(request.messages)})["content"] for request in requests
    ]
    assert set(server.fault_counts) == {"429", "500", "503", "dropped", "malformed", "hang"}
    assert server.most_at_once <= 16


def test_an_endpoint_without_a_key(chat_server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    server = chat_server()
    assert model_at(server).complete(HI).text
    with pytest.raises(RefusedError, match="no key; set the environment variable OPENAI_API_KEY"):
        OpenAIModel("m").complete(HI)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-zwölf-fünf")
    with pytest.raises(RefusedError, match="holds what cannot be a key") as caught:
        model_at(server).complete(HI)
    assert "zwölf" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000/v1", "/v1", "127.0.0.1"])
def test_a_base_url_without_its_scheme_is_refused_at_once(url):
    with pytest.raises(ValueError, match="expected http://HOST:PORT/v1"):
        OpenAIModel("m", url)


def test_another_variable_may_hold_the_key(chat_server, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "another-key-0123")
    server = chat_server()
    model_at(server, key_variable="OTHER_KEY").complete(HI)
    assert server.headers["authorization"] == "Bearer another-key-0123"


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_key_that_the_server_sends_back_is_told_to_nobody(chat_server, caplog, capfd, status):
    server = chat_server()
    caplog.set_level(logging.DEBUG)
    for _ in range(2):
        server.then(error(f"bad key {KEY} (sk-0123***cdef)"), status)
    model = model_at(server, attempts=2)
    with pytest.raises(InfrastructureError) as caught:
        model.complete(HI)
    assert "bad key [key] ([key])" in str(caught.value)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + str(capfd.readouterr())
    assert KEY not in told + repr(model) + repr(vars(model))


def test_a_key_in_a_reply_is_taken_out(chat_server):
    server = chat_server()
    server.then(answer(content=f"your key is {KEY}", tool_calls=[call(json.dumps({"query": KEY}))]))
    assert KEY not in model_at(server).complete(HI, [TOOL]).model_dump_json()


def test_async_calls_run_at_once(chat_server):
    server = chat_server(latency=0.2)
    model = model_at(server, workers=20)

    async def ask():
        requests = [Request(messages=({"role": "user", "content": str(i)},)) for i in range(20)]
        return await asyncio.gather(*(model.reply_async(request) for request in requests))

    assert len({reply.text for reply in asyncio.run(ask())}) == 20
    assert server.most_at_once > 10
