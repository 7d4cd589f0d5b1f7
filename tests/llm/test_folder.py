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
}


@pytest.fixture
def folder(random_model, tmp_path):
    return shutil.copytree(random_model, tmp_path / "model")


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def set_template(folder, template):
    (folder / "chat_template.jinja").write_text(template)


@pytest.fixture
def with_code(folder, tmp_path, monkeypatch):
    """The folder with code of its own, and the file that this code would make."""
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
    return folder, harm


@pytest.mark.parametrize("reader", READERS)
def test_no_code_of_a_folder_runs_whatever_the_user_types(with_code, reader):
    folder, harm = with_code
    with pytest.raises(DataError, match="no code of its own") as told:
        READERS[reader](folder)
    assert not harm.exists() and "\n" not in str(told.value)


def test_models_and_tokenizers_are_read_in_one_place_alone(project_root):
    files = [*project_root.glob("lib/**/*.py"), *project_root.glob("notebooks/*.ipynb")]
    reads = re.compile(r"^(?!.*``).*\bAuto\w+\.from_pretrained\(", re.MULTILINE)
    assert [file.name for file in files if reads.search(file.read_text("utf-8"))] == ["folder.py"]


def test_nor_does_it_for_a_model_that_plays_a_role(with_code):
    folder, harm = with_code
    with pytest.raises(RefusedError, match="no code of its own"):
        LocalModel(folder).complete(HI)
    assert not harm.exists()


def test_a_pickle_is_not_read(folder):
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match="safetensors"):
        read_model(folder, torch.float32)


def test_our_own_small_models_are_read_as_before(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    make_small_model(tokenizer, 0, {"hidden_size": 24, "intermediate_size": 32}).save_pretrained(tmp_path)
    text = 'search_product_by_query(["B1", "B2"]) please'
    assert read_tokenizer(tmp_path)(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert load_model(tmp_path, SftSettings()).config.hidden_size == 24


TEMPLATES = {
    "endless recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "a large range": ("{{ range(10**9) }}", "Range too big"),
    "out of the sandbox": ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    "globals": ("{{ cycler.__init__.__globals__ }}", "SecurityError"),
    "an error of its own": ("{{ raise_exception('first\nsecond') }}", "first second"),
    "no template": ("{% if", "TemplateSyntaxError"),
    "a division": ("{{ 1 / 0 }}", "ZeroDivisionError"),
    "what is not there": ("{{ messages[99].x.y }}", "UndefinedError"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_fails_is_one_line(folder, name):
    template, said = TEMPLATES[name]
    set_template(folder, template)
    with pytest.raises(RefusedError, match=rf"the chat template failed \(.*{said}") as told:
        LocalModel(folder).complete([{"role": "user", "content": "now"}])
    assert "\n" not in str(told.value) and len(str(told.value)) < 500


SCHEMA = {"type": "object", "properties": {}}
SEARCH = {"type": "function", "function": {"name": "search", "parameters": SCHEMA}}
TALK = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ PART }}"
    "{% endfor %}{% endfor %}"
)
DROPS = {  # a template -> what it drops
    "all": (TALK, "a call's function, a call's argument, the functions that may be called"),
    "functions": (TALK + CALLS.replace("PART", "c.function.arguments"), "the functions that may be called"),
    "arguments": (TALK + "{{ tools }}" + CALLS.replace("{{ PART }}", ""), "a call's argument"),
    "parameters": (
        TALK
        + "{% if tools %}{{ tools[0].function.name }}{% endif %}"
        + CALLS.replace("PART", "c.function.arguments"),
        "parameters of functions",
    ),
    "results": (
        TALK.replace("in messages", "in messages if m.role != 'tool'") + "{{ tools }}{{ messages[1:2] }}",
        "a call's result",
    ),
    "the role of results": (
        "{{ tools }}{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endif %}{{ m }}{% endfor %}",
        "TemplateError: no tools",
    ),
}


@pytest.mark.parametrize("name", DROPS)
def test_a_template_that_drops_functions_is_refused_where_some_may_be_called(folder, name):
    template, dropped = DROPS[name]
    set_template(folder, template)
    model = LocalModel(folder)
    assert model.complete(HI, max_tokens=2).usage.calls == 1
    with pytest.raises(RefusedError, match=f"cannot tell a conversation with tools: {dropped}$"):
        model.complete(HI, [SEARCH], max_tokens=2)


def test_our_own_models_know_functions_by_heart_and_tell_the_rest():
    assert dropped_by_template(make_tokenizer()) == []


def test_a_template_without_a_system_message_gets_it_in_the_users_first(folder):
    raising = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
    set_template(folder, raising + "{{ m.role }}: {{ m.content }}\n{% endfor %}")
    model = LocalModel(folder)
    messages = ({"role": "system", "content": "Be brief."}, *HI)
    prompt = model.loaded.tokenizer.decode(model._prompt(Request(messages=messages)))
    assert prompt == "user: Be brief.\n\nhi\n"


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


BROKEN = {
    "config.json is missing": lambda folder: (folder / "config.json").unlink(),
    "config.json is cut off": lambda folder: cut(folder / "config.json"),
    "config.json is empty": lambda folder: (folder / "config.json").write_text(""),
    "config.json is a list": lambda folder: (folder / "config.json").write_text("[]"),
    "config.json is no text": lambda folder: (folder / "config.json").write_bytes(b"\xff\x00"),
    "config.json names no type": lambda folder: (folder / "config.json").write_text("{}"),
    "an unknown type": lambda folder: change(folder / "config.json", model_type="nothing"),
    "no number of heads": lambda folder: change(folder / "config.json", num_attention_heads="many"),
    "another size": lambda folder: change(folder / "config.json", hidden_size=32),
    "another vocabulary": lambda folder: change(folder / "config.json", vocab_size=7),
    "weights are missing": lambda folder: (folder / "model.safetensors").unlink(),
    "weights are cut off": lambda folder: cut(folder / "model.safetensors"),
    "weights are empty": lambda folder: (folder / "model.safetensors").write_bytes(b""),
    "weights of a large head": lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 64),
    "the tokenizer is missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "the tokenizer is cut off": lambda folder: cut(folder / "tokenizer.json"),
    "the tokenizer is empty": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    "the tokenizer's settings are cut off": lambda folder: cut(folder / "tokenizer_config.json"),
    "no template": lambda folder: (folder / "chat_template.jinja").unlink(),
    "a template of no text": lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xff\xfe\xfa"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_one_line(folder, name):
    BROKEN[name](folder)
    with pytest.raises(RefusedError) as told:
        LocalModel(folder).complete(HI, max_tokens=2)
    assert "\n" not in str(told.value) and str(folder) in str(told.value)
