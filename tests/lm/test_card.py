"""A card says what it is given, as Hugging Face reads it."""

import pandas as pd
from huggingface_hub import ModelCard

from pwagents.lm.card import write_card

from ..orion.small_study import save_tiny_model


def card_of(folder, **changes):
    facts = {
        "title": "Orion, SFT",
        "what": "A small model of the embedded world; it knows no other shop.",
        "trained_on": {"trajectories": 400, "content hash": "abc123"},
        "training": {"learning_rate": 0.002, "lora": None},
    }
    write_card(folder, **(facts | changes))
    return ModelCard.load(folder / "README.md")


def test_the_header_and_the_text_are_made_of_the_facts(tmp_path):
    results = pd.DataFrame({"policy": ["base", "SFT"], "result accuracy": [0.1234567, 0.64]})
    card = card_of(tmp_path, results=results, base="Qwen/Qwen2.5-7B-Instruct", tags=("sft",))
    assert card.data.to_dict() == {
        "base_model": "Qwen/Qwen2.5-7B-Instruct",
        "library_name": "transformers",
        "license": "mit",
        "model_name": "Orion, SFT",
        "pipeline_tag": "text-generation",
        "tags": ["personalized-web-agents", "sft"],
    }
    assert "| trajectories | 400 |" in card.text and "| learning\\_rate | 0.002 |" in card.text
    assert "| policy | result accuracy |\n| --- | --- |\n| base | 0.123457 |\n| SFT | 0.64 |" in card.text


def test_a_folder_as_base_is_told_by_name_alone(tmp_path):
    card = card_of(tmp_path, base=str(tmp_path / "base-0123"))
    assert card.data.base_model == "base-0123" and str(tmp_path) not in (tmp_path / "README.md").read_text()


def test_foreign_text_breaks_neither_table_nor_header(tmp_path):
    card = card_of(tmp_path, title="a: b\n---\nc", trained_on={"name | x": "<b>\nnew"})
    assert card.data.model_name == "a: b --- c" and card.data.license == "mit"
    assert "| name \\| x | \\<b\\> new |" in card.text


def test_the_same_facts_give_the_same_bytes(tmp_path):
    card_of(tmp_path / "a")
    card_of(tmp_path / "b")
    assert (tmp_path / "a" / "README.md").read_bytes() == (tmp_path / "b" / "README.md").read_bytes()


def test_the_code_of_a_card_runs(tmp_path, capsys):
    folder = save_tiny_model(tmp_path)
    code = card_of(folder).text.split("```python\n")[1].split("```")[0]
    exec(code.replace("path/to/this/folder", str(folder)), {})
    assert capsys.readouterr().out.strip()
    assert "```python\nprint(1)\n```" in card_of(folder, use="print(1)").text
