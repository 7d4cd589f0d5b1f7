"""Models behind an endpoint: what is sent and learned, what comes back, what is tried again."""

import gzip
import json
import logging
import re
import threading
import time
import traceback
from email.utils import formatdate
from json import dumps

import pytest

from pwagents.errors import InfrastructureError
from pwagents.llm import failures, openai_model
from pwagents.llm.chat import Request, ask_all
from pwagents.llm.endpoints import endpoint_name, proxy_of, without_token
from pwagents.llm.failures import EndpointError, Failure, RefusedError, RejectedError
from pwagents.llm.openai_model import Limiter, OpenAIModel
from pwagents.schema import Usage

from .conftest import CIRCUMSTANCES
from .server import completion

KEY = "sk-test-0123456789abcdef"
HI = [{"role": "user", "content": "hi"}]
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "search", "parameters": QUERY}}


@pytest.fixture(autouse=True)
def a_key_and_short_waits(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.002)


def model_at(server, **options):
    return OpenAIModel("gpt-4o-mini", server.url, **options)


def answer(reason="stop", usage=None, **message):
    body = completion("key", {"model": "m", "messages": HI}, {"role": "assistant", "content": None} | message)
    body["choices"][0]["finish_reason"] = reason
    return body | ({"usage": usage} if usage is not None else {})


def refusal(message="no", **fields):
    return {"error": {"message": message} | fields}


def test_the_request_is_sent_as_it_is(chat_server, monkeypatch):
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
    monkeypatch.delenv("OPENAI_API_KEY")
    assert model_at(server).complete(HI).text  # a local endpoint needs none
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(RefusedError, match="no key; set the environment variable OPENAI_API_KEY"):
        OpenAIModel("gpt-4o").complete(HI)


@pytest.mark.parametrize("name", CIRCUMSTANCES["replies"])
def test_a_reply_is_the_same_whoever_serves_it(chat_server, name):
    server = chat_server()
    message, reason, expected = CIRCUMSTANCES["replies"][name]
    server.then(answer(reason, **message))
    reply = model_at(server).complete(HI, [TOOL])
    assert (reply.text, reply.thought) == (expected.get("text", ""), expected.get("thought", ""))
    assert (reply.finish_reason, reply.usage.parted) == (
        expected.get("reason", "stop"),
        expected.get("parted", 0),
    )
    calls = expected.get("calls", [])
    assert [call.arguments for call in reply.tool_calls] == [arguments for _, arguments in calls]
    for call, (own, _) in zip(reply.tool_calls, calls, strict=True):
        assert call.id == own if own else re.fullmatch("[a-z0-9]{9}", call.id)  # as every server takes
    assert sum(server.calls.values()) == 1


def test_what_a_reply_costs(chat_server):
    server = chat_server()
    model = model_at(server)
    server.then(answer(content="hello", usage={"prompt_tokens": 10**6, "completion_tokens": 10**5}))
    usage = model.complete(HI).usage
    assert usage == Usage(calls=1, prompt_tokens=10**6, completion_tokens=10**5, usd=usage.usd)
    assert usage.usd == pytest.approx(0.15 + 0.06)
    for counts in ({}, {"prompt_tokens": "9", "completion_tokens": None}, {"prompt_tokens": 10**12}, 3):
        server.then(answer(content="hello search{}", usage=counts))
        usage = model.complete(HI).usage  # a third of the bytes
        assert usage.completion_tokens == 5 and 15 < usage.prompt_tokens < 30


@pytest.mark.parametrize(("status", "body"), CIRCUMSTANCES["later"])
def test_what_may_pass_is_tried_again(chat_server, status, body):
    server = chat_server()
    server.then(body, status)
    assert model_at(server).complete(HI).text.startswith("reply") and sum(server.calls.values()) == 2


def test_it_gives_up_after_the_last_attempt_or_where_it_is_to_wait_for_an_hour(chat_server):
    server = chat_server()
    for _ in range(3):
        server.then(refusal("broken " + "x" * 1000 + "\nline"), 500)
    with pytest.raises(EndpointError, match="attempt 3 of 3: HTTP 500: broken xxx") as caught:
        model_at(server, attempts=3).complete(HI)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    with pytest.raises(EndpointError, match=r"^m at 127.0.0.1: attempt 2 of 2: no connection \(.*refused"):
        OpenAIModel("m", "http://127.0.0.1:9/v1", attempts=2).complete(HI)
    server.then(refusal("slow down"), 429, retry_after="3600")
    with pytest.raises(EndpointError, match="slow down; it asks to wait 3,600 s"):
        model_at(server).complete(HI)


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
    server.then(dumps([refusal(quota, details=[{"a": 1}, {"retryDelay": "0.4s"}])]), 429, **headers)
    model_at(server).complete(HI)
    monkeypatch.undo()
    time.tzset()
    first, second = server.arrivals
    assert 0.39 <= second - first < 60


FINAL = [(kind, *row) for kind, rows in CIRCUMSTANCES["final"].items() for row in rows]


@pytest.mark.parametrize(("kind", "status", "body"), FINAL)
def test_what_never_passes_is_told_in_one_line_and_not_tried_again(chat_server, kind, status, body):
    server = chat_server()
    server.then(body, status)
    with pytest.raises(getattr(failures, kind)) as caught:
        model_at(server).complete(HI)
    assert str(caught.value).startswith("gpt-4o-mini at 127.0.0.1: HTTP") and "\n" not in str(caught.value)
    assert sum(server.calls.values()) == 1


def test_one_prompt_that_is_refused_while_others_pass_is_that_prompts_matter(chat_server):
    server = chat_server()
    model = model_at(server)
    model.complete(HI)
    for status in (400, 403, 405, 422, 451):
        server.then(refusal("that I will not do"), status)
        with pytest.raises(RejectedError, match="that I will not do"):
            model.complete(HI)
    server.refuse = lambda body: refusal("no tools here") if body.get("tools") else None
    with pytest.raises(RefusedError, match="no tools here"):
        model.complete(HI, [TOOL])
    server.refuse = lambda body: refusal("Your credit balance is too low")
    with pytest.raises(RefusedError, match="credit"):
        model.complete(HI)


SENT = {"temperature": 0.5, "max_tokens": 9, "seed": 3, "top_p": 0.9}
IN_TURNS = "the system message within the user's first one"


def refusing(rules):
    """What a server answers that refuses by these rules, see ``circumstances.yaml``."""

    def refuse(body):
        roles = [message["role"] for message in body["messages"]]
        has = {*body, *({"system"} if roles[0] == "system" else ())}
        has |= {"turns"} if roles != ["user", "assistant"][: len(roles)] else set()
        return next((refusal for names, refusal in rules if has >= {*names.split()}), None)

    return refuse


@pytest.mark.parametrize("name", CIRCUMSTANCES["takes"])
def test_what_an_endpoint_will_not_take_is_learned_once_and_told(chat_server, name):
    server, row = chat_server(), CIRCUMSTANCES["takes"][name]
    server.refuse = refusing(row["refuses"])
    model, talk = model_at(server), [{"role": "system", "content": "Be brief."}, *HI, *HI]
    for _ in range(2):
        assert model.complete(talk, **SENT).text.startswith("reply")
    assert 1 <= len(server.bodies) - 2 <= 3
    assert any(row.get("told", IN_TURNS) in note for note in model.notes())
    body = server.bodies[-1]
    assert {k: v for k, v in body.items() if k not in ("model", "messages")} == row.get("sent", SENT)
    if "told" not in row:
        assert body["messages"] == [{"role": "user", "content": "Be brief.\n\nhi\n\nhi"}]


@pytest.mark.parametrize(("status", "body"), CIRCUMSTANCES["ranges"])
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
    server.refuse = refusing(CIRCUMSTANCES["takes"]["o-series"]["refuses"])
    model = model_at(server, workers=8)
    requests = [
        Request(messages=({"role": "user", "content": str(i)},), sampling={"max_tokens": 9}) for i in range(8)
    ]
    assert all(ask_all(model, requests, "tasks")) and server.bodies[-1]["max_completion_tokens"] == 9


def test_a_server_that_cuts_prompts_is_told(chat_server):
    server = chat_server()
    model = model_at(server)
    for size in (100, 40_000):
        server.then(answer(content="a", usage={"prompt_tokens": 256, "completion_tokens": 1}))
        model.complete([{"role": "user", "content": "x " * (size // 2)}])
        assert bool(model.notes()) == (size > 100)
    assert "256 tokens in a prompt of 40," in model.notes()[0]


@pytest.mark.parametrize("status", [400, 500])
def test_a_key_that_the_server_sends_back_is_told_to_nobody(chat_server, caplog, capfd, status):
    server = chat_server()
    caplog.set_level(logging.DEBUG)
    server.then(refusal(f"bad key {KEY} (sk-0123***cdef)"), status)
    model = model_at(server, attempts=1)
    with pytest.raises(InfrastructureError, match=r"bad key \[key\] \(\[key\]\)") as caught:
        model.complete(HI)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + str(capfd.readouterr())
    assert KEY not in told + repr(model) + repr(vars(model))


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
    assert (without_token(url) == url) == ("TOKEN" not in url)


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
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8, [fd07:b51a::]/32, [fd08::1]")
    spared = {url for url in ("10.1.2.3", "[fd08::1]", "11.1.2.3") if proxy_of(f"https://{url}/v1") is None}
    assert spared == {"10.1.2.3", "[fd08::1]"}


def test_an_answer_that_would_unpack_to_more_than_was_read_is_refused(chat_server):
    server = chat_server()
    packed = gzip.compress(json.dumps(answer(content="a" * 10**6)).encode())
    server.then(packed, content_encoding="gzip")
    with pytest.raises(InfrastructureError, match="a compressed answer"):
        model_at(server, attempts=1).complete(HI)
    assert server.headers["accept-encoding"] == "identity"


def test_a_time_out_is_tried_again_with_fewer_calls_at_once(chat_server):
    server = chat_server()
    server.then(answer(content="late"), delay=3.0)
    model = model_at(server, timeout_s=1.0, workers=8)
    assert model.complete(HI).text.startswith("reply")
    assert model.limiter.slots == 4


def test_congestion_halves_once_for_calls_that_fail_together_and_success_adds_one_a_round():
    limiter, together, at_once = Limiter(8), threading.Barrier(8), []

    def call(kind="", meet=lambda: None):
        try:
            with limiter.slot():
                at_once.append(limiter._under_way)
                meet()
                if kind:
                    raise Failure(kind, "no")
        except Failure:
            pass

    def at_the_same_time(n, **options):
        threads = [threading.Thread(target=call, kwargs=options) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    call("later")
    assert limiter.slots == 8
    at_the_same_time(8, kind="congested", meet=together.wait)
    assert limiter.slots == 4
    at_once.clear()
    at_the_same_time(20, kind="later", meet=lambda: time.sleep(0.005))
    assert max(at_once) == 4
    for expected, rounds in ((5, 5), (8, 100)):
        for _ in range(rounds):
            call()
        assert limiter.slots == expected
    for _ in range(9):
        call("congested")
    assert limiter.slots == 1
