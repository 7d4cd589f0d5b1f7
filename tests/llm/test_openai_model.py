"""Models behind an endpoint: what is sent and learned, what comes back, what is tried again."""

import logging
import re
import threading
import time
import traceback

import pytest

from pwagents.errors import InfrastructureError
from pwagents.llm import failures, openai_model
from pwagents.llm.chat import Request, ask_all
from pwagents.llm.failures import EndpointError, RefusedError, RejectedError, sort_failure
from pwagents.llm.openai_model import OpenAIModel, proxy_of

from .conftest import CIRCUMSTANCES, HI, TOOL
from .server import Answer, completion, default_reply

KEY = "sk-test-0123456789abcdef"
SENT = {"temperature": 0.5, "max_tokens": 9, "seed": 3, "top_p": 0.9}
ANSWERS = [{"role": "assistant", "content": "Hm."}, {"role": "assistant", "tool_calls": [{"id": "c"}]}]
TALK = [{"role": "system", "content": "Be brief."}, *HI, *HI, *ANSWERS]
IN_TURNS = [{"role": "user", "content": "Be brief.\n\nhi\n\nhi"}, *ANSWERS]


@pytest.fixture
def server(chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(openai_model, "FIRST_WAIT_S", 0.002)
    monkeypatch.setattr(openai_model, "TIMEOUT_S", 1.0)
    return chat_server()


@pytest.fixture
def model(server):
    return OpenAIModel("gpt-4o-mini", server.url, workers=8, attempts=3)


def refusal(message="no", **fields):
    return {"error": {"message": message} | fields}


def test_the_request_is_sent_as_it_is(server, model, monkeypatch):
    half = [{"role": "user", "content": "half \ud83d"}]  # of a pair, which has no UTF-8 form
    model.complete(half, [TOOL], sample=1, top_k=2, **SENT)
    seeded = SENT | {"seed": 4, "top_k": 2}  # else an endpoint that heeds the seed repeats itself
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "half ?"}], "tools": [TOOL]}
    assert server.bodies == [asked | seeded]
    assert server.headers["authorization"] == f"Bearer {KEY}"
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(RefusedError, match="no key; set the environment variable OPENAI_API_KEY"):
        OpenAIModel("gpt-4o", "https://api.openai.com/v1").complete(HI)


@pytest.mark.parametrize("row", CIRCUMSTANCES["replies"].values(), ids=CIRCUMSTANCES["replies"])
def test_a_reply_is_the_same_whoever_serves_it(server, model, row):
    message, reason, expected = row
    answer = completion({"role": "assistant", "content": None} | message, reason=reason)
    server.then(answer | {"usage": {"prompt_tokens": 10**6, "completion_tokens": 10**5}})
    reply, calls = model.complete(HI, [TOOL]), expected.get("calls", [])
    assert (reply.text, reply.thought) == (expected.get("text", ""), expected.get("thought", ""))
    assert reply.finish_reason == expected.get("reason", "tool_calls" if calls else "stop")
    assert (reply.usage.parted, reply.usage.usd) == (expected.get("parted", 0), pytest.approx(0.15 + 0.06))
    assert [call.arguments for call in reply.tool_calls] == [arguments for _, arguments in calls]
    for call, (own, _) in zip(reply.tool_calls, calls, strict=True):
        assert call.id == own if own else re.fullmatch("[a-z0-9]{9}", call.id)  # as every server takes
    assert len(server.bodies) == 1


FAILURES = [(kind, *row) for kind, rows in CIRCUMSTANCES["failures"].items() for row in rows]


@pytest.mark.parametrize(("kind", "status", "body"), FAILURES)
def test_a_failure_is_sorted_by_its_structure(server, model, kind, status, body):
    server.then(body, status)
    if kind != "later":
        told = r"[a-z_]+: .* \(players\.sampling\)" if kind == "ranges" else "HTTP"
        error = getattr(failures, kind, RefusedError)
        with pytest.raises(error, match=rf"\Agpt-4o-mini at 127\.0\.0\.1: {told}[^\n]*\Z"):
            model.complete(HI, **SENT)
    assert model.complete(HI, **SENT) and not model.note() and len(server.bodies) == 2
    assert server.bodies[-1].keys() == {"model", "messages", *SENT}


def test_one_prompt_that_is_refused_while_others_pass_is_that_prompts_matter(server, model):
    model.complete(HI)
    for status in (400, 403, 404, 405, 422, 451):
        server.then(refusal("that I will not do"), status)
        with pytest.raises(RejectedError, match="that I will not do"):
            model.complete(HI)
    for tools, told in ([TOOL], "no tools here"), ([], "Your credit balance is too low"):
        server.reply = lambda body, told=told: Answer(refusal(told), 400)
        with pytest.raises(RefusedError, match=told):
            model.complete(HI, tools)


@pytest.mark.parametrize("row", CIRCUMSTANCES["takes"].values(), ids=CIRCUMSTANCES["takes"])
def test_what_an_endpoint_will_not_take_is_learned_by_all_threads_and_told(server, model, row):
    refusals, learned = row["refused"], row.get("learned", {})

    def reply(body):
        roles = [message["role"] for message in body["messages"]]
        has = {*body, roles[0], *(["turns"] if roles[:2] != ["user", "assistant"] else [])}
        refused = next((error for names, error in refusals if has >= {*names.split()}), None)
        return Answer({"error": refused}, 400) if refused else default_reply(body)

    server.reply, server.latency = reply, 0.02
    assert all(ask_all(model, [Request(messages=tuple(TALK), sampling=SENT)] * 4, "tasks"))
    server.bodies.clear()
    model.complete(TALK, **SENT)
    sent = {learned.get(parameter, parameter): value for parameter, value in SENT.items()}
    sent |= {"model": "gpt-4o-mini", "messages": TALK if learned else IN_TURNS}
    assert server.bodies == [{parameter: value for parameter, value in sent.items() if parameter}]
    told = [f"{other} in place of {own}" if other else f"no {own}" for own, other in learned.items()]
    told = told or ["the system message within the user's first one"]
    assert all(each in model.note() for each in told)


@pytest.mark.parametrize("row", CIRCUMSTANCES["beside"].values(), ids=CIRCUMSTANCES["beside"])
def test_what_a_server_puts_beside_a_turn_goes_back_to_it_alone(server, model, chat_server, row):
    said, back, unwanted = row
    calls = {"tool_calls": [{"id": "c", "function": {"name": "s"}}]} if "tool_calls" in back else {}
    plain = {"role": "assistant", "content": "Hm."} | calls
    server.then(completion({"role": "assistant", "content": "Hm."} | said))
    turn = [*HI, plain | {"extras": model.complete(HI, [TOOL]).extras}]
    other = chat_server()  # whose model has the same name
    for each, got in ((other, plain), (server, plain | back)):
        OpenAIModel("gpt-4o-mini", each.url).complete(turn)
        assert each.bodies[-1]["messages"] == [*HI, got]

    # What it then refuses, in whatever words, is left out from then on, and this is told.
    refused = Answer(refusal(unwanted), 400)
    server.reply = lambda body: default_reply(body) if plain in body["messages"] else refused
    for _ in range(2 * bool(unwanted)):
        assert model.complete(turn) and "was sent no reasoning" in model.note()


def test_a_server_that_cuts_prompts_is_told(server, model):
    for size in (100, 40_000):
        server.then(completion({"content": "a"}, prompt="a" * 1024))
        model.complete([{"role": "user", "content": "x " * (size // 2)}])
        assert bool(model.note()) == (size > 100)
    assert "256 tokens in a prompt of 40," in model.note()


def test_what_is_told_in_the_end_is_one_short_line_without_the_key(server, model, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server.reply = lambda body: Answer(refusal(f"bad {KEY} (sk-0123***cdef)\n" + "x" * 1000), 500)
    line = r"\Agpt-4o-mini at 127.0.0.1: attempt 3 of 3: HTTP 500: bad \[key\] \(\[key\]\) x+\.\.\.\Z"
    with pytest.raises(EndpointError, match=line) as caught:
        model.complete(HI)
    told = "".join(traceback.format_exception(caught.value)) + caplog.text + str(capfd.readouterr())
    assert KEY not in told + repr(model) + repr(vars(model)) and len(str(caught.value)) < 400


def test_a_token_in_the_path_of_a_url_is_told_nowhere(server, caplog):
    caplog.set_level(logging.DEBUG)
    path = "/0123456789%3AabcdefTOKEN"
    model = OpenAIModel("m", server.url.replace("/v1", f"{path}/v1"), attempts=1)
    for status, told in ((404, path), (502, path.replace("%3A", ":"))):
        server.then(refusal(f"no route {told}/v1/chat/completions"), status)
        with pytest.raises(InfrastructureError, match=rf"HTTP {status}: no route /\[key\]/v1/"):
            model.complete(HI)
    server.then(completion({"content": f"I am at {path}."}))
    assert model.complete(HI).text == "I am at /[key]."
    assert caplog.text and "TOKEN" not in caplog.text


def test_retry_after_is_read_in_every_form(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    dates = ["%a, %d %b %Y %T GMT", "%A, %d-%b-%y %T GMT", "%a %b %d %T %Y", "%a, %d %b %Y %T -0000"]
    for told in ("40", "40, 40", "40.0 s", "40000ms", "+40;", "0m 40s", "%FT%TZ", *dates):
        told = time.strftime(told, time.gmtime(time.time() + 40))
        assert 38 < sort_failure(429, {}, {"retry-after": told}).wait <= 40
    assert sort_failure(429, {}, {"x-ms-retry-after-ms": "40000"}).wait == 40
    assert sort_failure(429, [refusal(details=[{"a": 1}, {"retryDelay": "40s"}])]).wait == 40  # Gemini's
    monkeypatch.undo()
    time.tzset()


def test_congestion_is_waited_for(server, model):
    for _ in range(2):
        server.then(refusal(), 429, retry_after="0.4")
        server.then(completion({"content": "late"}), drip=3.0)
        began = time.monotonic()
        assert model.complete(HI).text.startswith("reply") and time.monotonic() - began > 1.39
        assert model.limiter.slots == 2  # 8, halved and halved; then 1 and what a good call adds
    server.then(refusal(), 429, retry_after="3600")
    with pytest.raises(EndpointError, match="it asks to wait 3,600 s"):
        model.complete(HI)


def test_calls_that_fail_together_halve_the_calls_at_once_and_a_good_round_adds_one(server, model):
    model.complete(HI)  # which opens the client
    server.bodies.clear()
    together = threading.Barrier(8)

    def reply(body):
        if len(server.bodies) > 8:
            return default_reply(body)
        together.wait(10)
        return Answer(refusal(), 429)

    server.reply, server.latency, began = reply, 0.3, time.monotonic()
    assert all(ask_all(model, [Request(messages=tuple(HI))] * 8, "tasks"))
    assert model.limiter.slots == 5 and time.monotonic() - began > 0.89


@pytest.mark.parametrize(("setting", "told"), CIRCUMSTANCES["environment"])
def test_loopback_is_reached_and_elsewhere_a_bad_variable_is_named(server, model, monkeypatch, setting, told):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    for each in (setting, setting.replace("HTTPS_PROXY", "HTTP_PROXY")):
        monkeypatch.setenv(*each.split("=", 1))
    assert model.complete(HI).text
    with pytest.raises(InfrastructureError, match=rf"\A(?!.*hunter2)[^\n]*{told}[^\n]*\Z"):
        OpenAIModel("m", "https://gpu.invalid/v1", attempts=1).complete(HI)


@pytest.mark.parametrize(("spared", "host"), CIRCUMSTANCES["spared"].items())
def test_no_proxy_spares_what_it_lists(monkeypatch, spared, host):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", spared)
    assert proxy_of(f"https://{host}:443/v1") is None
    assert spared == "*" or proxy_of("https://11.1.2.3/v1")
