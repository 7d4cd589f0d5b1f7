"""Models from folders: no code runs, templates drop nothing, broken files are one line."""

import json
import re
import shutil

import pytest
import torch

from pwagents.errors import DataError
from pwagents.llm.chat import Request
from pwagents.llm.failures import RefusedError
from pwagents.llm.folder import dropped_by_template, read_config, read_model, read_tokenizer
from pwagents.llm.local_model import LocalModel
from pwagents.lm.fit import without_storage
from pwagents.lm.load import load_model
from pwagents.lm.settings import SftSettings
from pwagents.lm.small import make_small_model, make_tokenizer

HI = [{"role": "user", "content": "hi"}]
READERS = {
    "tokenizer": read_tokenizer,
    "config": read_config,
    "model": lambda folder: read_model(folder, torch.float32),
    "training": lambda folder: load_model(folder, SftSettings()),
    "fit": without_storage,
    "role": lambda folder: LocalModel(folder).complete(HI),
}


@pytest.fixture
def folder(random_model, tmp_path):
    return shutil.copytree(random_model, tmp_path / "model")


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize("reader", READERS)
def test_no_code_of_a_folder_runs_whatever_the_user_types(folder, reader, tmp_path, monkeypatch):
    harm = tmp_path / "harm"
    (folder / "evil.py").write_text(f"open({str(harm)!r}, 'w')\nclass Evil: pass\n")
    for file, names in {
        "config.json": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"},
        "tokenizer_config.json": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]},
    }.items():
        change(folder / file, auto_map=names, model_type="evil", tokenizer_class="Evil")
    # transformers would ask the user, and take "y" for leave to run the code
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("signal.alarm", lambda *_: None)
    with pytest.raises((DataError, RefusedError), match="no code of its own") as told:
        READERS[reader](folder)
    assert not harm.exists() and "\n" not in str(told.value)


def test_models_and_tokenizers_are_read_in_one_place_alone(project_root):
    files = [*project_root.glob("lib/**/*.py"), *project_root.glob("notebooks/*.ipynb")]
    reads = re.compile(r"^(?!.*``).*\bAuto\w+\.from_pretrained\(", re.MULTILINE)
    assert [file.name for file in files if reads.search(file.read_text("utf-8"))] == ["folder.py"]


def test_our_own_small_models_are_read_as_before_and_tell_what_they_are_told(tmp_path):
    tokenizer = make_tokenizer()
    assert dropped_by_template(tokenizer) == []  # they know functions by heart
    tokenizer.save_pretrained(tmp_path)
    make_small_model(tokenizer, 0, {"hidden_size": 24, "intermediate_size": 32}).save_pretrained(tmp_path)
    text = 'search_product_by_query(["B1", "B2"]) please'
    assert read_tokenizer(tmp_path)(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert load_model(tmp_path, SftSettings()).config.hidden_size == 24


FAILING = {  # a template -> what is told of it, in one line
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "recursion",
    "{{ range(10**9) }}": "Range too big",
    "{{ ''.__class__.__mro__ }}": "SecurityError",
    "{{ raise_exception('first\nsecond') }}": "first second",
    "{% if": "TemplateSyntaxError",
    "{{ 1 / 0 }}": "ZeroDivisionError",
    "{{ messages[99].x.y }}": "UndefinedError",
}


@pytest.mark.parametrize("template", FAILING)
def test_a_template_that_fails_is_one_line(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(RefusedError, match=rf"the chat template failed \(.*{FAILING[template]}") as told:
        LocalModel(folder).complete([{"role": "user", "content": "now"}])
    assert "\n" not in str(told.value) and len(str(told.value)) < 500


SCHEMA = {"type": "object", "properties": {}}
SEARCH = {"type": "function", "function": {"name": "search", "parameters": SCHEMA}}
TALK = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ PART }}"
    "{% endfor %}{% endfor %}"
)
WITH_ARGUMENTS = CALLS.replace("PART", "c.function.arguments")
REFUSES_RESULTS = "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
DROPS = {  # a template -> what it drops
    TALK: "a call's function, a call's argument, the functions that may be called",
    TALK + WITH_ARGUMENTS: "the functions that may be called",
    TALK + "{{ tools }}" + CALLS.replace("{{ PART }}", ""): "a call's argument",
    TALK + "{% if tools %}{{ tools[0].function.name }}{% endif %}" + WITH_ARGUMENTS:
        "parameters of functions",
    TALK.replace("in messages", "in messages if m.role != 'tool'") + "{{ tools }}{{ messages[1:2] }}":
        "a call's result",
    "{{ tools }}{% for m in messages %}" + REFUSES_RESULTS + "{{ m }}{% endfor %}": "TemplateError: no tools",
}  # fmt: skip


@pytest.mark.parametrize("template", DROPS)
def test_a_template_that_drops_functions_is_refused_where_some_may_be_called(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    model = LocalModel(folder)
    assert model.complete(HI, max_tokens=2).usage.calls == 1
    with pytest.raises(RefusedError, match=f"cannot tell a conversation with tools: {DROPS[template]}$"):
        model.complete(HI, [SEARCH], max_tokens=2)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
        "{{ m.role }}: {{ m.content }}{% endfor %}",
        "{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}{% endfor %}",
    ],
)
def test_a_template_without_a_system_message_gets_it_in_the_users_first_and_no_day(folder, template):
    date = "{% if not date_string is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}{{ date_string }} "
    (folder / "chat_template.jinja").write_text(date + template)
    model = LocalModel(folder)
    messages = ({"role": "system", "content": "Be brief."}, *HI)
    prompt = model.loaded.tokenizer.decode(model._prompt(Request(messages=messages)))
    assert prompt == "26 Jul 2024 user: Be brief.\n\nhi"


BROKEN = {  # a file and what stands in it: None: nothing, a number: so much of it, a dict: other values
    "config.json": (None, 0.5, b"", b"[]", b"\xff\x00", b"{}", {"model_type": "nothing"},
                    {"num_attention_heads": "many"}, {"hidden_size": 32}, {"vocab_size": 7}),
    "model.safetensors": (None, 0.5, b"", b"\xff" * 64),
    "tokenizer.json": (None, 0.5, b"{}"),
    "tokenizer_config.json": (0.5,),
    "chat_template.jinja": (None, b"\xff\xfe\xfa"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content"), [(name, each) for name in BROKEN for each in BROKEN[name]])
def test_a_broken_model_is_one_line(folder, name, content):
    file = folder / name
    if content is None:
        file.unlink()
        torch.save({}, folder / "pytorch_model.bin")  # a pickle is not read in its place
    elif isinstance(content, dict):
        change(file, **content)
    else:
        whole = file.read_bytes()
        file.write_bytes(content if isinstance(content, bytes) else whole[: int(len(whole) * content)])
    with pytest.raises(RefusedError) as told:
        LocalModel(folder).complete(HI, max_tokens=2)
    assert "\n" not in str(told.value) and str(folder) in str(told.value)
