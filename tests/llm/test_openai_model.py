"""Models behind an endpoint: what is sent and learned, what comes back, what is tried again."""

import json
import logging
import time
import traceback
from email.utils import formatdate

import pytest

from pwagents.errors import InfrastructureError, NotEvaluableError
from pwagents.llm import openai_model
from pwagents.llm.chat import Request, ToolCall, ask_all
from pwagents.llm.endpoints import endpoint_name
from pwagents.llm.failures import (
    ContentFilterError,
    ContextTooLongError,
    EndpointError,
    RefusedError,
    RejectedError,
)
from pwagents.llm.openai_model import OpenAIModel
from pwagents.schema import Usage

from .server import completion, error

KEY = "sk-test-0123456789abcdef"
HI = [{"role": "user", "content": "hi"}]
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "search", "parameters": QUERY}}


@pytest.fixture(autouse=True)
def a_key_and_short_waits(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.002)


def model_at(server, name="gpt-4o-mini", **options):
    return OpenAIModel(name, server.url, **options)


def answer(reason="stop", **message):
    body = completion("key", {"model": "m", "messages": HI}, {"role": "assistant", "content": None} | message)
    body["choices"][0]["finish_reason"] = reason
    return body


def call(arguments, name="search", **fields):
    return fields | {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_request_is_sent_as_it_is(chat_server):
    server = chat_server()
    half = [{"role": "user", "content": "half \ud83d"}]  # of a pair, which has no UTF-8 form
    model_at(server).complete(half, [TOOL], temperature=0.6, max_tokens=5, top_k=3, seed=5, sample=1)
    (body,) = server.bodies
    assert body == {
        "model": "gpt-4o-mini", "messages": [{"role": "user", "content": "half ?"}], "tools": [TOOL],
        "temperature": 0.6, "max_tokens": 5, "top_k": 3,
        "seed": 6,  # else an endpoint that heeds the seed repeats itself
    }  # fmt: skip
    assert server.headers["authorization"] == f"Bearer {KEY}"


def test_a_text_and_its_cost(chat_server):
    server = chat_server()
    server.then(answer(content="hello") | {"usage": {"prompt_tokens": 10**6, "completion_tokens": 10**5}})
    reply = model_at(server).complete(HI)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("hello", (), "stop")
    assert reply.usage.usd == pytest.approx(0.15 + 0.06)
    assert reply.usage == Usage(calls=1, prompt_tokens=10**6, completion_tokens=10**5, usd=reply.usage.usd)


REPLIES = {  # an answer -> text, thought, calls (id or None, arguments), why it ended
    "a text in parts": (answer(content=[{"type": "text", "text": "a"}, {"type": "x"}]), "a", "", [], "stop"),
    "a thought in a field": (answer(content="a", reasoning_content="b"), "a", "b", [], "stop"),
    "a thought in another field": (answer(content="a", reasoning="b"), "a", "b", [], "stop"),
    "a thought in the text": (answer(content="<think>b</think>a"), "a", "b", [], "stop"),
    "a call": (answer(tool_calls=[call('{"a": "co', id="c1")]), "", "", [("c1", '{"a": "co')], "tool_calls"),
    "a call without an id": (answer(tool_calls=[call("{}")]), "", "", [(None, "{}")], "tool_calls"),
    "a call as text": (answer(content='<tool_call>{"name": "search"}'), "", "", [(None, "{}")], "tool_calls"),
    "nothing": (answer(content=""), "", "", [], "stop"),
    "cut": (answer("length", content="cut of"), "cut of", "", [], "length"),
    "cut, in Mistral's word": (answer("model_length", content="cut of"), "cut of", "", [], "length"),
    "cut in a thought in the text": (answer("length", content="<think>cut of"), "", "cut of", [], "length"),
    "withheld": (answer("content_filter"), "", "", [], "content_filter"),
    "ended in another word": (answer("eos", content="half \ud83d"), "half ?", "", [], "stop"),
    "ended in no word": (answer(None, content="a"), "a", "", [], "stop"),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_the_same_whoever_serves_it(chat_server, name):
    server = chat_server()
    body, text, thought, calls, reason = REPLIES[name]
    server.then(body)
    reply = model_at(server).complete(HI, [TOOL])
    assert (reply.text, reply.thought, reply.finish_reason) == (text, thought, reason)
    assert [(c.id, c.arguments) for c in reply.tool_calls] == [
        (i or reply.tool_calls[0].id, a) for i, a in calls
    ]
    assert all(
        i or (len(c.id) == 9 and c.id.isalnum()) for c, (i, _) in zip(reply.tool_calls, calls, strict=True)
    )
    assert reply.usage.parted == int("text" in name and "parts" not in name)
    assert sum(server.calls.values()) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(chat_server, status):
    server = chat_server()
    server.then(error("later"), status)
    server.then("<html>bad gateway", status, content_type="text/html")
    assert model_at(server).complete(HI).text.startswith("reply")
    assert sum(server.calls.values()) == 3


@pytest.mark.parametrize(
    "body",
    [
        '{"choices": [', "", "[1]", '{"choices": []}', "null", {"error": {"code": 502}}, {"error": "busy"},
        answer("error", content=""), answer("abort", content="a"), answer("tool_calls"),
        {"choices": [{"message": {"content": ""}, "error": {"code": 503}, "finish_reason": "stop"}]},
    ],
)  # fmt: skip
def test_a_good_status_around_a_failure_is_tried_again(chat_server, body):
    server = chat_server()
    server.then(body)
    assert model_at(server).complete(HI).text.startswith("reply")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 401, "message": "No user."}},
        {"error": {"code": "insufficient_quota", "message": "No user."}},
    ],
)
def test_a_refusal_in_a_good_answer_is_final(chat_server, body):
    server = chat_server()
    server.then(body)
    with pytest.raises(RefusedError, match=r"^gpt-4o-mini at 127.0.0.1: .*No user"):
        model_at(server).complete(HI)
    assert sum(server.calls.values()) == 1


def test_a_time_out_is_tried_again_with_fewer_calls_at_once(chat_server):
    server = chat_server()
    server.then(answer(content="late"), delay=3.0)
    model = model_at(server, timeout_s=1.0, workers=8)
    assert model.complete(HI).text.startswith("reply")
    assert model.limiter.slots == 4


def test_nobody_listening_ends_as_an_endpoint_error():
    model = OpenAIModel("m", "http://127.0.0.1:9/v1", attempts=2)
    with pytest.raises(EndpointError, match=r"^m at 127.0.0.1: attempt 2 of 2: no connection \(.*refused"):
        model.complete(HI)


def dated(form):
    return lambda: time.strftime(form, time.gmtime(time.time() + 1.99))


WAITS = {
    "seconds": {"retry_after": "0.4"},
    "milliseconds": {"retry_after_ms": "400"},
    "a date": {"retry_after": lambda: formatdate(time.time() + 1.99, usegmt=True)},
    "RFC 850": {"retry_after": dated("%A, %d-%b-%y %H:%M:%S GMT")},
    "asctime": {"retry_after": dated("%a %b %d %H:%M:%S %Y")},
    "no zone": {"retry_after": dated("%a, %d %b %Y %H:%M:%S -0000")},
}


@pytest.mark.parametrize("headers", WAITS.values(), ids=WAITS)
def test_retry_after_is_honoured_in_every_form(chat_server, headers, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    server = chat_server()
    headers = {name: value() if callable(value) else value for name, value in headers.items()}
    server.then(error("slow down"), 429, **headers)
    model_at(server).complete(HI)
    monkeypatch.undo()
    time.tzset()
    first, second = server.arrivals
    assert 0.39 <= second - first < 60


def test_a_server_that_asks_for_an_hour_is_given_up(chat_server):
    server = chat_server()
    server.then(error("slow down"), 429, retry_after="3600")
    with pytest.raises(EndpointError, match="slow down; it asks to wait 3,600 s"):
        model_at(server).complete(HI)


def error_of(message="no", **fields):
    return {"error": {"message": message} | fields}


FINAL = [
    (400, error("the request has no such field"), RefusedError),
    (401, error("Incorrect API key"), RefusedError),
    (402, error("Insufficient Balance"), RefusedError),
    (403, error("not in your country"), RefusedError),
    (404, error("The model `m` does not exist"), RefusedError),
    (404, {"detail": "Not Found"}, RefusedError),
    (501, error("no such thing here"), RefusedError),
    (429, error("pay first", "insufficient_quota"), RefusedError),
    (429, error("Request too large: Limit 30000", "rate_limit_exceeded"), ContextTooLongError),
    (400, error("no", "context_length_exceeded"), ContextTooLongError),
    (400, error("maximum context length is 8192 tokens"), ContextTooLongError),
    (400, error("exceeds the available context size"), ContextTooLongError),
    (400, error("prompt is too long: 9 tokens > 8 maximum"), ContextTooLongError),
    (
        400,
        {"message": "The prompt (length 9) is longer than the maximum model length of 8."},
        ContextTooLongError,
    ),
    (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096"}, ContextTooLongError),
    (
        400,
        error_of("Range of input length should be [1, 8192]", code="invalid_parameter"),
        ContextTooLongError,
    ),
    (413, "too much", ContextTooLongError),
    (
        500,
        error_of("the request exceeds the context size", type="exceed_context_size_error"),
        ContextTooLongError,
    ),
    (400, error("no", "content_filter"), ContentFilterError),
    (400, error("Content Exists Risk"), ContentFilterError),
    (400, error_of(code="1301", contentFilter=[{"level": 1, "role": "user"}]), ContentFilterError),
    (400, error_of(code="bad", innererror={"content_filter_result": {"hate": {}}}), ContentFilterError),
    (403, error_of(code=403, metadata={"reasons": ["x"], "flagged_input": "..."}), ContentFilterError),
]


@pytest.mark.parametrize(("status", "body", "kind"), FINAL)
def test_what_never_passes_is_told_in_one_line_and_not_tried_again(chat_server, status, body, kind):
    server = chat_server()
    server.then(body, status)
    with pytest.raises(kind) as caught:
        model_at(server).complete(HI)
    assert str(caught.value).startswith("gpt-4o-mini at 127.0.0.1: HTTP") and "\n" not in str(caught.value)
    assert sum(server.calls.values()) == 1
    assert isinstance(caught.value, (InfrastructureError, NotEvaluableError))


def test_one_prompt_that_is_refused_while_others_pass_is_that_prompts_matter(chat_server):
    server = chat_server()
    model = model_at(server)
    model.complete(HI)
    for status in (400, 403, 405, 422, 451):
        server.then(error("that I will not do"), status)
        with pytest.raises(RejectedError, match="that I will not do"):
            model.complete(HI)
    server.refuse = lambda body: error("no tools here") if body.get("tools") else None
    with pytest.raises(RefusedError, match="no tools here"):
        model.complete(HI, [TOOL])
    server.refuse = lambda body: error("Your credit balance is too low")  # as Anthropic says it
    with pytest.raises(RefusedError, match="credit"):
        model.complete(HI)


UNSUPPORTED, LIMITS = "unsupported_value", ("max_tokens", "max_completion_tokens")
TAKES = {  # a server's rule: body -> its refusal, or nothing; what is told
    "o-series": (
        lambda b: ("max_tokens" in b and error_of("not this one", param="max_tokens", code=UNSUPPORTED))
        or (b.get("temperature", 1) != 1 and error_of("Only 1", param="temperature", code=UNSUPPORTED)),
        "max_completion_tokens in place of max_tokens", {"max_completion_tokens": 9, "seed": 3},
    ),
    "no limit under either name": (
        lambda b: next((error_of(f"Unknown parameter: '{name}'") for name in LIMITS if name in b), None),
        "no max_tokens", {"temperature": 0.5, "seed": 3},
    ),
    "a validator's list": (
        lambda b: "seed" in b and {"detail": [{"loc": ["body", "seed"], "msg": "no extra fields"}]},
        "no seed", {"temperature": 0.5, "max_tokens": 9},
    ),
    "a template without system": (
        lambda b: b["messages"][0]["role"] == "system" and error_of("System role not supported"),
        "the system message within the user's first one", {"temperature": 0.5, "max_tokens": 9, "seed": 3},
    ),
    "a role by its path": (
        lambda b: b["messages"][0]["role"] == "system" and error_of("no", param="messages[0].role"),
        "the system message within the user's first one", {"temperature": 0.5, "max_tokens": 9, "seed": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKES)
def test_what_an_endpoint_will_not_take_is_learned_once_and_told(chat_server, name):
    refuse, told, sampling = TAKES[name]
    server = chat_server()
    server.refuse = refuse
    model, talk = model_at(server), [{"role": "system", "content": "Be brief."}, *HI]
    for _ in range(2):
        assert model.complete(talk, temperature=0.5, max_tokens=9, seed=3).text.startswith("reply")
    n_refused = len(server.bodies) - 2
    assert 1 <= n_refused <= 3 and any(told in note for note in model.notes())
    assert {k: v for k, v in server.bodies[-1].items() if k not in ("model", "messages")} == sampling
    if "system" in told:
        assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Be brief.\n\nhi"}]


def test_a_server_that_cuts_prompts_is_told(chat_server):
    server = chat_server()
    model = model_at(server)
    for size in (100, 40_000):
        server.then(answer(content="a") | {"usage": {"prompt_tokens": 256, "completion_tokens": 1}})
        model.complete([{"role": "user", "content": "x " * (size // 2)}])
        assert bool(model.notes()) == (size > 100)
    assert "256 tokens in a prompt of 40," in model.notes()[0]


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
    replies = ask_all(model, requests, "tasks")
    expected = [server.reply({"messages": list(request.messages)})["content"] for request in requests]
    assert [reply.text for reply in replies] == expected and server.most_at_once > 2


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
    server.then(answer(content=f"your key is {KEY}", tool_calls=[call(json.dumps({"query": KEY}), id="c")]))
    reply = model_at(server).complete(HI, [TOOL])
    assert KEY not in reply.model_dump_json() and isinstance(reply.tool_calls[0], ToolCall)


def test_keys_come_from_the_environment(chat_server, monkeypatch):
    server = chat_server()
    monkeypatch.setenv("OTHER_KEY", "another-key-0123")
    model_at(server, key_variable="OTHER_KEY").complete(HI)
    assert server.headers["authorization"] == "Bearer another-key-0123"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert model_at(server).complete(HI).text  # a local endpoint needs none
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(RefusedError, match="no key; set the environment variable OPENAI_API_KEY"):
        OpenAIModel("gpt-4o").complete(HI)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1/v1"),
        ("http://localhost:8001/v1/", "localhost/v1"),
        ("https://gpu.example:8000/v1", "gpu.example:8000/v1"),
        ("https://host.example/0123456789abcdefTOKEN/v1", "host.example/dd9b1d60/v1"),
    ],
)
def test_an_endpoints_name_holds_no_port_of_this_machine_and_no_token(url, name):
    assert endpoint_name(url).split("/")[::2] == name.split("/")[::2] and "TOKEN" not in endpoint_name(url)


PROXIES = {  # what is set -> the words that an error must hold; none where it works
    "HTTP_PROXY=http://127.0.0.1:9": (),
    "ALL_PROXY=socks://127.0.0.1:9": (),
    "SSL_CERT_FILE=/no/such/file.pem": (),
    "NO_PROXY=localhost,::1,[::1],10.0.0.0/8,fd07:b51a::/64": (),
}
BAD_PROXIES = {
    "HTTPS_PROXY=http://127.0.0.1:9": "proxy",
    "ALL_PROXY=socks://127.0.0.1:9": "proxy",
    "SSL_CERT_FILE=/no/such/file.pem": "SSL_CERT_FILE=/no/such/file.pem",
}


@pytest.mark.parametrize("setting", PROXIES)
def test_this_machine_is_reached_whatever_proxies_are_set(chat_server, monkeypatch, setting):
    monkeypatch.setenv(*setting.split("=", 1))
    assert model_at(chat_server()).complete(HI).text


@pytest.mark.parametrize(("setting", "told"), BAD_PROXIES.items())
def test_a_bad_proxy_or_certificate_is_named(monkeypatch, setting, told):
    monkeypatch.setenv(*setting.split("=", 1))
    with pytest.raises(InfrastructureError, match=told) as caught:
        OpenAIModel("m", "https://gpu.invalid/v1", attempts=1).complete(HI)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,gpu.invalid")
    with pytest.raises(InfrastructureError) as caught:
        OpenAIModel("m", "https://gpu.invalid/v1", attempts=1).complete(HI)
    assert "proxy" not in str(caught.value).lower() or told != "proxy"
