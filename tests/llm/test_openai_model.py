"""Models behind an endpoint: what is sent and learned, what comes back, what is tried again."""

import logging
import re
import threading
import time
import traceback
from contextlib import ExitStack, suppress

import pytest

from pwagents.errors import InfrastructureError
from pwagents.llm import failures, openai_model
from pwagents.llm.chat import Request, ask_all
from pwagents.llm.endpoints import endpoint_name, proxy_of
from pwagents.llm.failures import EndpointError, Failure, RefusedError, RejectedError, sort_failure
from pwagents.llm.openai_model import Limiter, OpenAIModel

from .conftest import CIRCUMSTANCES, HI, TOOL
from .server import Answer, completion, default_reply

KEY = "sk-test-0123456789abcdef"
SENT = {"temperature": 0.5, "max_tokens": 9, "seed": 3, "top_p": 0.9}
ANSWERS = [{"role": "assistant", "content": "Hm."}, {"role": "assistant", "tool_calls": [{"id": "c"}]}]
TALK = [{"role": "system", "content": "Be brief."}, *HI, *HI, *ANSWERS]
IN_TURNS = [{"role": "user", "content": "Be brief.\n\nhi\n\nhi"}, *ANSWERS]


@pytest.fixture(autouse=True)
def a_key_and_short_waits(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.002)


@pytest.fixture
def server(chat_server):
    return chat_server()


def model_at(server, **options):
    return OpenAIModel("gpt-4o-mini", server.url, **options)


def refusal(message="no", **fields):
    return {"error": {"message": message} | fields}


def test_the_request_is_sent_as_it_is(server, monkeypatch):
    half = [{"role": "user", "content": "half \ud83d"}]  # of a pair, which has no UTF-8 form
    model_at(server).complete(half, [TOOL], sample=1, top_k=2, **SENT)
    seeded = SENT | {"seed": 4}  # else an endpoint that heeds the seed repeats itself
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "half ?"}], "tools": [TOOL]}
    assert server.bodies == [asked | seeded | {"top_k": 2}]
    assert server.headers["authorization"] == f"Bearer {KEY}"
    assert server.headers["accept-encoding"] == "identity"  # a few compressed bytes may unpack to gigabytes
    monkeypatch.delenv("OPENAI_API_KEY")
    assert model_at(server).complete(HI).text  # a local endpoint needs none
    with pytest.raises(RefusedError, match="no key; set the environment variable OPENAI_API_KEY"):
        OpenAIModel("gpt-4o", "https://api.openai.com/v1").complete(HI)


@pytest.mark.parametrize("name", CIRCUMSTANCES["replies"])
def test_a_reply_is_the_same_whoever_serves_it(server, name):
    message, reason, expected = CIRCUMSTANCES["replies"][name]
    answer = completion({"role": "assistant", "content": None} | message, reason=reason)
    server.then(answer | {"usage": {"prompt_tokens": 10**6, "completion_tokens": 10**5}})
    reply, calls = model_at(server).complete(HI, [TOOL]), expected.get("calls", [])
    assert (reply.text, reply.thought) == (expected.get("text", ""), expected.get("thought", ""))
    assert reply.finish_reason == expected.get("reason", "tool_calls" if calls else "stop")
    assert (reply.usage.parted, reply.usage.usd) == (expected.get("parted", 0), pytest.approx(0.15 + 0.06))
    assert [call.arguments for call in reply.tool_calls] == [arguments for _, arguments in calls]
    for call, (own, _) in zip(reply.tool_calls, calls, strict=True):
        assert call.id == own if own else re.fullmatch("[a-z0-9]{9}", call.id)  # as every server takes
    assert len(server.bodies) == 1


FAILURES = [(kind, *row) for kind, rows in CIRCUMSTANCES["failures"].items() for row in rows]


@pytest.mark.parametrize(("kind", "status", "body"), FAILURES)
def test_a_failure_is_sorted_by_its_structure(server, kind, status, body):
    model, error = model_at(server), getattr(failures, kind, RefusedError)
    server.then(body, status)
    if kind != "later":
        told = r"[a-z_]+: .* \(players\.sampling\)" if kind == "ranges" else "HTTP"
        with pytest.raises(error, match=rf"\Agpt-4o-mini at 127\.0\.0\.1: {told}[^\n]*\Z"):
            model.complete(HI, **SENT)
    assert model.complete(HI, **SENT) and not model.notes() and len(server.bodies) == 2
    assert server.bodies[-1].keys() == {"model", "messages", *SENT}


def test_it_gives_up_after_the_last_attempt_or_where_it_is_to_wait_for_an_hour(server):
    server.reply = lambda body: Answer(refusal("broken " + "x" * 1000 + "\nline"), 500)
    with pytest.raises(EndpointError, match="attempt 3 of 3: HTTP 500: broken xxx") as caught:
        model_at(server, attempts=3).complete(HI)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    server.then(refusal("slow down"), 429, retry_after="3600")
    with pytest.raises(EndpointError, match="slow down; it asks to wait 3,600 s"):
        model_at(server).complete(HI)


WAITS = [{"retry-after": wait} for wait in ("40", "40, 40", "40.0 s", "40000ms")]
WAITS += [{"retry-after-ms": "40000"}, [refusal(details=[{"a": 1}, {"retryDelay": "40s"}])]]  # Gemini's body
WAITS += ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"]
WAITS += ["%a, %d %b %Y %H:%M:%S -0000"]  # no zone


@pytest.mark.parametrize("told", WAITS, ids=str)
def test_retry_after_is_read_in_every_form_and_honoured(server, told, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    if isinstance(told, str):
        told = {"retry-after": time.strftime(told, time.gmtime(time.time() + 40))}
    body, headers = (told, {}) if isinstance(told, list) else ({}, told)
    assert 38 < sort_failure(429, body, headers).wait <= 40
    monkeypatch.undo()
    time.tzset()


def test_congestion_is_waited_for_and_met_with_fewer_calls_at_once(server):
    server.then(refusal(), 429, retry_after="0.4")
    server.then(completion({"content": "late"}), drip=3.0)
    began, model = time.monotonic(), model_at(server, timeout_s=1.0, workers=8)
    assert model.complete(HI).text.startswith("reply") and time.monotonic() - began > 1.39
    assert model.limiter.slots == 2


def test_one_prompt_that_is_refused_while_others_pass_is_that_prompts_matter(server):
    model = model_at(server)
    model.complete(HI)
    for status in (400, 403, 405, 422, 451):
        server.then(refusal("that I will not do"), status)
        with pytest.raises(RejectedError, match="that I will not do"):
            model.complete(HI)
    for tools, told in ([TOOL], "no tools here"), ([], "Your credit balance is too low"):
        server.reply = lambda body, told=told: Answer(refusal(told), 400)
        with pytest.raises(RefusedError, match=told):
            model.complete(HI, tools)


@pytest.mark.parametrize("name", CIRCUMSTANCES["takes"])
def test_what_an_endpoint_will_not_take_is_learned_by_all_threads_and_told(chat_server, name):
    row = CIRCUMSTANCES["takes"][name]

    def reply(body):
        roles = [message["role"] for message in body["messages"]]
        has = {*body, roles[0], *(["turns"] if roles[:2] != ["user", "assistant"] else [])}
        refused = next((answer for names, answer in row["refuses"] if has >= {*names.split()}), None)
        return Answer(refused, 400) if refused else default_reply(body)

    server = chat_server(reply=reply, latency=0.02)
    model = model_at(server, workers=4)
    assert all(ask_all(model, [Request(messages=tuple(TALK), sampling=SENT)] * 4, "tasks"))
    server.bodies.clear()
    model.complete(TALK, **SENT)
    messages = TALK if "told" in row else IN_TURNS
    assert server.bodies == [{"model": "gpt-4o-mini", "messages": messages} | row.get("sent", SENT)]
    told = row.get("told", "the system message within the user's first one")
    assert any(told in note for note in model.notes())


def test_a_server_that_cuts_prompts_is_told(server):
    model = model_at(server)
    for size in (100, 40_000):
        server.then(completion({"content": "a"}, prompt="a" * 1024))
        model.complete([{"role": "user", "content": "x " * (size // 2)}])
        assert bool(model.notes()) == (size > 100)
    assert "256 tokens in a prompt of 40," in model.notes()[0]


@pytest.mark.parametrize("status", [400, 500])
def test_a_key_that_the_server_sends_back_is_told_to_nobody(server, caplog, capfd, status):
    caplog.set_level(logging.DEBUG)
    server.then(refusal(f"bad key {KEY} (sk-0123***cdef)"), status)
    model = model_at(server, attempts=1)
    with pytest.raises(InfrastructureError, match=r"bad key \[key\] \(\[key\]\)") as caught:
        model.complete(HI)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + str(capfd.readouterr())
    assert KEY not in told + repr(model) + repr(vars(model))


@pytest.mark.parametrize(("setting", "told"), CIRCUMSTANCES["environment"])
def test_this_machine_is_reached_whatever_is_set_and_elsewhere_a_bad_setting_is_named(
    server, monkeypatch, setting, told
):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(*setting.replace("HTTPS_PROXY", "HTTP_PROXY").split("=", 1))
    assert model_at(server).complete(HI).text
    monkeypatch.setenv(*setting.split("=", 1))
    with pytest.raises(InfrastructureError, match=told) as caught:
        OpenAIModel("m", "https://gpu.invalid/v1", attempts=1).complete(HI)
    assert "\n" not in str(caught.value) and "hunter2" not in str(caught.value)


SPARED = ["10.0.0.0/8, gpu.invalid", "*.invalid", ".invalid", "gpu.invalid:443", "*"]
HOSTS = dict.fromkeys(SPARED, "gpu.invalid") | {"[fd07:b51a::]/32, 10.0.0.0/8": "10.1.2.3", "[::2]": "[::2]"}


@pytest.mark.parametrize("spared", HOSTS)
def test_no_proxy_spares_what_it_lists(monkeypatch, spared):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", spared)
    assert proxy_of(f"https://{HOSTS[spared]}:443/v1") is None
    assert spared == "*" or proxy_of("https://11.1.2.3/v1")


@pytest.mark.parametrize(("url", "name"), CIRCUMSTANCES["endpoints"])
def test_an_endpoints_name_holds_no_port_of_this_machine_and_no_token(url, name):
    assert re.fullmatch(name, endpoint_name(url))


def test_congestion_halves_once_for_calls_that_fail_together_and_success_adds_one_a_round():
    limiter = Limiter(8)

    def call(kind=""):
        with suppress(Failure), limiter.slot():
            if kind:
                raise Failure(kind, "no")

    call("later")
    assert limiter.slots == 8
    with suppress(Failure), limiter.slot(), limiter.slot():
        raise Failure("congested", "no")
    assert limiter.slots == 4
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(limiter.slot())
        fifth = threading.Thread(target=call)
        fifth.start()
        fifth.join(0.1)
        assert fifth.is_alive()
    fifth.join()
    assert limiter.slots == 5
    for _ in range(100):
        call()
    assert limiter.slots == 8
    for _ in range(9):
        call("congested")
    assert limiter.slots == 1
