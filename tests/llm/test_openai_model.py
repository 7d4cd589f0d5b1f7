"""Models behind an endpoint: what is sent and learned, what comes back, what is tried again."""

import json
import logging
import re
import time
import traceback
from email.utils import formatdate

import pytest

from pwagents.errors import InfrastructureError
from pwagents.llm import openai_model
from pwagents.llm.chat import Request, ask_all
from pwagents.llm.endpoints import endpoint_name, proxy_of, without_token
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


def refusal(message="no", **fields):
    return {"error": {"message": message} | fields}


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


def test_what_a_reply_costs(chat_server):
    server = chat_server()
    model = model_at(server)
    server.then(answer(content="hello") | {"usage": {"prompt_tokens": 10**6, "completion_tokens": 10**5}})
    usage = model.complete(HI).usage
    assert usage == Usage(calls=1, prompt_tokens=10**6, completion_tokens=10**5, usd=usage.usd)
    assert usage.usd == pytest.approx(0.15 + 0.06)
    for told in (None, {}, {"prompt_tokens": "9", "completion_tokens": None}, {"prompt_tokens": 10**12}, 3):
        server.then(answer(content="hello", tool_calls=[call("{}")]) | {"usage": told})
        usage = model.complete(HI).usage  # a third of the bytes
        assert usage.completion_tokens == 5 and 15 < usage.prompt_tokens < 30


REFUSAL = {"type": "refusal", "refusal": "no"}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}
REPLIES = {  # an answer -> text, thought, calls (id or None, arguments), why it ended
    "a text in parts": (answer(content=[{"type": "text", "text": "a"}, {"type": "x"}]), "a", "", [], "stop"),
    "plain parts": (answer(content=["a", {"type": "text", "text": None}]), "a", "", [], "stop"),
    "one part": (answer(content={"type": "output_text", "text": "a"}), "a", "", [], "stop"),
    "a refusal": (answer(refusal="no"), "no", "", [], "content_filter"),
    "a refusal in parts": (answer(content=[REFUSAL]), "no", "", [], "stop"),
    "a thought in a field": (answer(content="a", reasoning_content="b"), "a", "b", [], "stop"),
    "a thought in another field": (answer(content="a", reasoning="b"), "a", "b", [], "stop"),
    "a thought in parts": (
        answer(content=[THINKING, {"type": "text", "text": "a"}]), "a", "b", [], "stop"),
    "a thought that is no words": (answer(content="a", reasoning={"effort": 1}), "a", "", [], "stop"),
    "a thought in the text": (answer(content="<think>b</think>a"), "a", "b", [], "stop"),
    "a call": (answer(tool_calls=[call('{"a": "co', id="c1")]), "", "", [("c1", '{"a": "co')], "tool_calls"),
    "a call without an id": (answer(tool_calls=[call("{}", id="")]), "", "", [(None, "{}")], "tool_calls"),
    "a call with a dict": (
        answer("tool_use", tool_calls=[call({"a": 1}, id=7)]), "", "", [(None, '{"a": 1}')], "tool_calls"),
    "a call without arguments": (answer(tool_calls=[call(None)]), "", "", [(None, "")], "tool_calls"),
    "a flat call": (
        answer(tool_calls=[{"id": "c1", "name": "search", "arguments": "{}"}]), "", "", [("c1", "{}")],
        "tool_calls"),
    "the older form": (
        answer("function_call", function_call={"name": "search", "arguments": "{}"}), "", "",
        [(None, "{}")], "tool_calls"),
    "a call as text": (answer(content='<tool_call>{"name": "search"}'), "", "", [(None, "{}")], "tool_calls"),
    "nothing": (answer(content=""), "", "", [], "stop"),
    "cut": (answer("length", content="cut of"), "cut of", "", [], "length"),
    "cut, in Mistral's word": (answer("model_length", content="cut of"), "cut of", "", [], "length"),
    "cut, in Gemini's word": (answer("MAX_TOKENS", content="cut of"), "cut of", "", [], "length"),
    "cut in a thought in the text": (answer("length", content="<think>cut of"), "", "cut of", [], "length"),
    "cut in a call in the text": (
        answer("length", content="<function=search><parameter=query>a co"), "", "",
        [(None, "<parameter=query>a co")], "length"),
    "withheld": (answer("content_filter"), "", "", [], "content_filter"),
    "withheld, in Gemini's word": (answer("PROHIBITED_CONTENT"), "", "", [], "content_filter"),
    "ended in another word": (answer("eos", content="half \ud83d"), "half ?", "", [], "stop"),
    "ended in no word": (answer(None, content="a"), "a", "", [], "stop"),
    "the key": (answer(content=f"it is {KEY}", tool_calls=[call(json.dumps({"a": KEY}))]), "it is [key]", "",
        [(None, '{"a": "[key]"}')], "tool_calls"),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_the_same_whoever_serves_it(chat_server, name):
    server = chat_server()
    body, text, thought, calls, reason = REPLIES[name]
    server.then(body)
    reply = model_at(server).complete(HI, [TOOL])
    assert (reply.text, reply.thought, reply.finish_reason) == (text, thought, reason)
    assert [each.arguments for each in reply.tool_calls] == [arguments for _, arguments in calls]
    for each, (told, _) in zip(reply.tool_calls, calls, strict=True):
        assert each.id == told if told else re.fullmatch("[a-z0-9]{9}", each.id)  # as every server takes
    assert reply.usage.parted == int(name.endswith("in the text") or "as text" in name)
    assert sum(server.calls.values()) == 1


def in_choice(**fields):
    return {"choices": [answer(content="a")["choices"][0] | fields]}


@pytest.mark.parametrize(
    "body",
    [
        '{"choices": [', "", "[1]", "null", '[{"error": {"code": 503}}]', 'data: {"choices": []}\n\n',
        {"choices": []}, {"choices": None}, {"error": {"code": 502}}, {"error": "busy"},
        {"object": "error", "message": "busy"}, in_choice(error={"code": 503}), in_choice(message=None),
        answer("error", content=""), answer("abort", content="a"), answer("tool_calls"), answer(None),
        answer(content={"a": 1}), answer(content=5),
    ],
)  # fmt: skip
def test_a_good_status_around_a_failure_is_tried_again(chat_server, body):
    server = chat_server()
    server.then(body)
    assert model_at(server).complete(HI).text.startswith("reply") and sum(server.calls.values()) == 2


@pytest.mark.parametrize("status", [408, 409, 424, 429, 498, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(chat_server, status):
    server = chat_server()
    server.then(error("later"), status)
    server.then("<html>bad gateway", status, content_type="text/html")
    assert model_at(server).complete(HI).text.startswith("reply")
    assert sum(server.calls.values()) == 3


def test_it_gives_up_after_the_last_attempt(chat_server):
    server = chat_server()
    for _ in range(3):
        server.then(error("broken " + "x" * 1000 + "\nline"), 500)
    with pytest.raises(EndpointError, match="attempt 3 of 3: HTTP 500: broken xxx") as caught:
        model_at(server, attempts=3).complete(HI)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    with pytest.raises(EndpointError, match=r"^m at 127.0.0.1: attempt 2 of 2: no connection \(.*refused"):
        OpenAIModel("m", "http://127.0.0.1:9/v1", attempts=2).complete(HI)


def test_a_time_out_is_tried_again_with_fewer_calls_at_once(chat_server):
    server = chat_server()
    server.then(answer(content="late"), delay=3.0)
    model = model_at(server, timeout_s=1.0, workers=8)
    assert model.complete(HI).text.startswith("reply")
    assert model.limiter.slots == 4


def test_mixed_faults_do_not_show(chat_server):
    server = chat_server(faults=0.2, seed=3, hang=3.0)
    model = model_at(server, timeout_s=1.0, workers=16)
    requests = [Request(messages=({"role": "user", "content": f"task {i}"},)) for i in range(120)]
    replies = ask_all(model, requests, "tasks")
    expected = [server.reply({"messages": list(request.messages)})["content"] for request in requests]
    assert [reply.text for reply in replies] == expected and server.most_at_once > 2


def dated(form):
    return lambda: time.strftime(form, time.gmtime(time.time() + 1.99))


WAITS = {
    "seconds": {"retry_after": "0.4"},
    "seconds, twice": {"retry_after": "0.4, 0.4"},
    "with a unit": {"retry_after": "400ms"},
    "milliseconds": {"retry_after_ms": "400"},
    "a date": {"retry_after": lambda: formatdate(time.time() + 1.99, usegmt=True)},
    "RFC 850": {"retry_after": dated("%A, %d-%b-%y %H:%M:%S GMT")},
    "asctime": {"retry_after": dated("%a %b %d %H:%M:%S %Y")},
    "no zone": {"retry_after": dated("%a, %d %b %Y %H:%M:%S -0000")},
    "Gemini's, in the body": {},
}


@pytest.mark.parametrize("name", WAITS)
def test_retry_after_is_honoured_in_every_form(chat_server, name, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    server = chat_server()
    headers = {name: value() if callable(value) else value for name, value in WAITS[name].items()}
    quota = "You exceeded your current quota, please check your plan and billing details."
    server.then(json.dumps([refusal(quota, details=[{"a": 1}, {"retryDelay": "0.4s"}])]), 429, **headers)
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


WRAPPED = json.dumps(refusal("maximum context length is 8192 tokens"))
FINAL = {
    RefusedError: [
        (400, error("the request has no such field")), (401, error("Incorrect API key")),
        (402, error("Insufficient Balance")), (403, error("not in your country")),
        (404, error("The model `m` does not exist")), (404, {"detail": "Not Found"}),
        (501, error("no such thing here")), (429, error("pay first", "insufficient_quota")),
        (400, ""), (307, ""), (200, refusal(code=401)), (200, refusal(code="insufficient_quota")),
    ],
    ContextTooLongError: [
        (429, error("Request too large: Limit 30000", "rate_limit_exceeded")), (413, "too much"),
        (400, error("no", "context_length_exceeded")), (400, error("maximum context length is 8192 tokens")),
        (400, error("exceeds the available context size")),
        (400, error("prompt is too long: 9 tokens > 8 maximum")),
        (400, {"message": "The prompt (length 9) is longer than the maximum model length of 8."}),
        (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096"}),
        (422, {"error": "`inputs` must have less than 4095 tokens. Given: 5000"}),
        (400, error("Trying to keep the first 9 tokens when the context overflows")),
        (400, refusal("Range of input length should be [1, 8192]", code="invalid_parameter")),
        (400, refusal("'max_tokens' is too large: the context length is 8 tokens", param="max_tokens")),
        (400, refusal("Provider returned error", metadata={"raw": WRAPPED})),
        (500, refusal("the request exceeds the context size", type="exceed_context_size_error")),
        (200, refusal(code="context_length_exceeded")), (502, refusal(code="context_length_exceeded")),
    ],
    ContentFilterError: [
        (400, error("no", "content_filter")), (400, error("Content Exists Risk")),
        (400, refusal(code="1301", contentFilter=[{"level": 1, "role": "user"}])),
        (400, refusal(code="bad", innererror={"content_filter_result": {"hate": {}}})),
        (403, refusal(code=403, metadata={"reasons": ["x"], "flagged_input": "..."})),
        (200, refusal(code="content_filter")),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "status", "body"), [(kind, *case) for kind, cases in FINAL.items() for case in cases]
)
def test_what_never_passes_is_told_in_one_line_and_not_tried_again(chat_server, kind, status, body):
    server = chat_server()
    server.then(body, status)
    with pytest.raises(kind) as caught:
        model_at(server).complete(HI)
    assert str(caught.value).startswith("gpt-4o-mini at 127.0.0.1: HTTP") and "\n" not in str(caught.value)
    assert sum(server.calls.values()) == 1


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
    server.refuse = lambda body: error("Your credit balance is too low")
    with pytest.raises(RefusedError, match="credit"):
        model.complete(HI)


UNSUPPORTED, LIMITS = "unsupported_value", ("max_tokens", "max_completion_tokens")
SENT = {"temperature": 0.5, "max_tokens": 9, "seed": 3, "top_p": 0.9}
IN_TURNS = "the system message within the user's first one"
SYSTEM = {"role": "system", "content": "Be brief."}


def in_turns(body):
    roles = [message["role"] for message in body["messages"]]
    return roles == ["user", "assistant"][: len(roles)]


def without(*names):
    return {name: value for name, value in SENT.items() if name not in names}


TAKES = {  # a server's rule: body -> its refusal, or nothing; what is told; what is sent in the end
    "o-series": (
        lambda b: ("max_tokens" in b and refusal("not this one", param="max_tokens", code=UNSUPPORTED))
        or (b.get("temperature", 1) != 1 and refusal("Only 1", param="temperature", code=UNSUPPORTED)),
        "max_completion_tokens in place of max_tokens",
        without("max_tokens", "temperature") | {"max_completion_tokens": 9},
    ),
    "no limit under either name": (
        lambda b: next((refusal(f"Unknown parameter: '{name}'") for name in LIMITS if name in b), None),
        "no max_tokens", without("max_tokens"),
    ),
    "a limit that thoughts use up": (
        lambda b: ("max_tokens" in b and refusal(param="max_tokens", code=UNSUPPORTED))
        or ("max_completion_tokens" in b
            and refusal("Could not finish the message because max_tokens or the output limit was reached.")),
        "no max_tokens", without("max_tokens"),
    ),
    "a validator's list": (
        lambda b: "seed" in b and {"detail": [
            {"loc": ["body", "seed"], "msg": "no extra fields", "input": "max context length"}]},
        "no seed", without("seed"),
    ),
    "a list of names": (
        lambda b: {"seed", "top_p"} & {*b} and refusal("no", param=["seed", "top_p"]),
        "no top_p", without("seed", "top_p"),
    ),
    "one of two": (
        lambda b: {"temperature", "top_p"} <= {*b}
        and refusal("`temperature` and `top_p` cannot both be specified for this model."),
        "no temperature", without("temperature"),
    ),
    "behind a gateway": (
        lambda b: "top_p" in b
        and refusal("Provider returned error", metadata={"raw": json.dumps(refusal(param="top_p"))}),
        "no top_p", without("top_p"),
    ),
    "a template without system": (
        lambda b: b["messages"][0]["role"] == "system" and refusal("System role not supported"),
        IN_TURNS, SENT,
    ),
    "a role by its path": (
        lambda b: b["messages"][0]["role"] == "system" and refusal("no", param="messages[0].role"),
        IN_TURNS, SENT,
    ),
    "Gemma behind Gemini's API": (
        lambda b: b["messages"][0]["role"] == "system" and refusal("Developer instruction is not enabled"),
        IN_TURNS, SENT,
    ),
    "roles in turns": (
        lambda b: not in_turns(b) and refusal("Conversation roles must alternate user/assistant/..."),
        IN_TURNS, SENT,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKES)
def test_what_an_endpoint_will_not_take_is_learned_once_and_told(chat_server, name):
    refuse, told, sampling = TAKES[name]
    server = chat_server()
    server.refuse = refuse
    model, talk = model_at(server), [SYSTEM, *HI, *HI]
    for _ in range(2):
        assert model.complete(talk, **SENT).text.startswith("reply")
    assert 1 <= len(server.bodies) - 2 <= 3 and any(told in note for note in model.notes())
    assert {k: v for k, v in server.bodies[-1].items() if k not in ("model", "messages")} == sampling
    if told == IN_TURNS:
        assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Be brief.\n\nhi\n\nhi"}]


OUT_OF_RANGE = [  # in the words of OpenAI, DeepSeek, vLLM, TGI, a validator of pydantic's
    (400, refusal("Invalid 'temperature': decimal above maximum value. Expected a value <= 2.",
                  param="temperature", code="decimal_above_max_value")),
    (400, refusal("max_tokens is too large: 9. This model supports at most 8 completion tokens.",
                  param="max_tokens")),
    (400, refusal("Invalid max_tokens value, the valid range of max_tokens is [1, 8]")),
    (400, {"object": "error", "message": "top_p must be in (0, 1], got 0.9."}),
    (422, {"error": "`temperature` must be strictly positive", "error_type": "validation"}),
    (422, {"detail": [{"type": "less_than_equal", "loc": ["body", "seed"], "msg": "Input should be fewer"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_the_settings_mistake_and_drops_no_parameter(chat_server, status, body):
    server = chat_server()
    model = model_at(server)
    server.then(body, status)
    with pytest.raises(RefusedError, match=r"(temperature|max_tokens|top_p|seed): .* \(players\.sampling\)"):
        model.complete(HI, **SENT)
    assert sum(server.calls.values()) == 1
    assert model.complete(HI, **SENT) and not model.notes()
    assert server.bodies[-1].keys() == {"model", "messages", *SENT}


def test_threads_that_are_refused_together_learn_once(chat_server):
    server = chat_server(latency=0.1)
    server.refuse = TAKES["o-series"][0]
    model = model_at(server, workers=8)
    requests = [
        Request(messages=({"role": "user", "content": str(i)},), sampling={"max_tokens": 9}) for i in range(8)
    ]
    assert all(ask_all(model, requests, "tasks")) and server.bodies[-1]["max_completion_tokens"] == 9


def test_a_server_that_cuts_prompts_is_told(chat_server):
    server = chat_server()
    model = model_at(server)
    for size in (100, 40_000):
        server.then(answer(content="a") | {"usage": {"prompt_tokens": 256, "completion_tokens": 1}})
        model.complete([{"role": "user", "content": "x " * (size // 2)}])
        assert bool(model.notes()) == (size > 100)
    assert "256 tokens in a prompt of 40," in model.notes()[0]


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


def test_keys_come_from_the_environment(chat_server, monkeypatch):
    server = chat_server()
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-0123\n")
    model_at(server).complete(HI)
    assert server.headers["authorization"] == "Bearer another-key-0123"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert model_at(server).complete(HI).text  # a local endpoint needs none
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(RefusedError, match="no key; set the environment variable OPENAI_API_KEY"):
        OpenAIModel("gpt-4o").complete(HI)


NAMES = {
    "http://127.0.0.1:8000/v1": r"127\.0\.0\.1/v1",
    "http://localhost:8001/v1/": "localhost/v1",
    "http://[::1]:8001/v1": "::1/v1",
    "http://0.0.0.0:8001/v1": r"0\.0\.0\.0/v1",
    "https://gpu.example:8000/v1": r"gpu\.example:8000/v1",
    "https://host.example/0123456789:abcdef=TOKEN/v1": r"host\.example/\w{8}/v1",
}


@pytest.mark.parametrize("url", NAMES)
def test_an_endpoints_name_holds_no_port_of_this_machine_and_no_token(url):
    assert re.fullmatch(NAMES[url], endpoint_name(url))


def test_of_a_url_only_what_may_be_a_token_is_hidden():
    host = "https://inference.gpu-cluster.example.org"
    assert without_token(f"{host}/v1") == f"{host}/v1"
    assert re.fullmatch(rf"{host}/\w{{8}}/v1", without_token(f"{host}/0123456789:abcdef=TOKEN/v1"))


@pytest.mark.parametrize(
    "setting",
    ["HTTP_PROXY=http://127.0.0.1:9", "HTTP_PROXY=127.0.0.1:9", "ALL_PROXY=socks://127.0.0.1:9",
     "SSL_CERT_FILE=/no/such/file.pem", "NO_PROXY=localhost,::1,[::1],10.0.0.0/8,fd07:b51a::/64"],
)  # fmt: skip
def test_this_machine_is_reached_whatever_proxies_are_set(chat_server, monkeypatch, setting):
    monkeypatch.setenv(*setting.split("=", 1))
    assert model_at(chat_server()).complete(HI).text


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("HTTPS_PROXY=http://127.0.0.1:9", "proxy of HTTPS_PROXY"),
        ("HTTPS_PROXY=127.0.0.1:9", "proxy of HTTPS_PROXY"),
        ("ALL_PROXY=socks://me:hunter2@127.0.0.1:9", r"proxy socks://\.\.\.@127"),
        ("SSL_CERT_FILE=/no/such/file.pem", "SSL_CERT_FILE=/no/such/file.pem"),
        ("REQUESTS_CA_BUNDLE=/no/such/file.pem", "REQUESTS_CA_BUNDLE=/no/such/file.pem"),
    ],
)
def test_a_bad_proxy_or_certificate_is_named(monkeypatch, setting, told):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(*setting.split("=", 1))
    with pytest.raises(InfrastructureError, match=told) as caught:
        OpenAIModel("m", "https://gpu.invalid/v1", attempts=1).complete(HI)
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)
    for spared in ("10.0.0.0/8, gpu.invalid", "*.invalid", ".invalid", "gpu.invalid:443", "*"):
        monkeypatch.setenv("NO_PROXY", spared)
        assert proxy_of("https://gpu.invalid:443/v1") is None
