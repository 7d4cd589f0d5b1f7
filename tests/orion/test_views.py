"""What notebooks 05 to 07 show, by hand."""

import math
from collections import Counter

import pandas as pd
import pytest

from pwagents.data.synthetic.words import TaskTruth
from pwagents.data.synthetic.world import Truth
from pwagents.lm.tokens import tokenize_conversation
from pwagents.notebook.settings import load_settings
from pwagents.orion.control import FOREIGN, NONE, OWN
from pwagents.orion.role_play import RolePlay
from pwagents.orion.settings import OrionPlayers, SftNotebook
from pwagents.orion.views import (
    PRINTED,
    model_calls,
    of_one_seed,
    orion_rows,
    profile_effect,
    role_play_outcomes,
    show_card,
    show_tokens,
    starts_and_gains,
    success_by_rank,
    with_ambiguity,
    worth_of_profiles,
)
from pwagents.profiles.catalogue import Catalogue
from pwagents.schema import Product, Review, Task
from pwagents.tasks.ambiguity import WordIndex


def frame(values, type_="search"):
    """Rows of (method, user, task) -> result accuracy; all else is 1."""
    keys = ["method", "user_id", "task_id"]
    rows = [dict(zip(keys, key, strict=True)) | {"result_final": value} for key, value in values.items()]
    return pd.DataFrame(rows).assign(type=type_, step_accuracy=1.0, steps=2.0)


@pytest.fixture(scope="module")
def catalogue():
    colors, stores = ["navy", "red"], ["Kestrel", "Willow"]
    products = [
        Product(
            parent_asin=f"B{i}",
            title=f"{stores[i % 2]} {colors[i % 2]} wool jacket",
            category="Clothing",
            price=10.0 + i,
            store=stores[i % 2],
            details={"Color": colors[i % 2], "Material": "wool"},
        )
        for i in range(12)
    ]
    return Catalogue({product.parent_asin: product for product in products})


def task(task_id, instruction, target):
    review = Review(rating=5)
    return Task(
        task_id=task_id, user_id="u", type="search", timestamp=1, instruction=instruction, target=target,
        review=review,
    )  # fmt: skip


def test_ambiguity_goes_from_what_says_most_to_what_says_least(catalogue):
    tasks = [task("vague", "I want a jacket", "B0"), task("clear", "The jacket with id B0", "B0")]
    wants = {"kind": "incomplete", "interest": "coats", "wants": {}, "stated": (), "in_history": ()}
    truth = Truth({}, {}, {"vague": TaskTruth(**wants, in_head=("color", "style"))})
    episodes = frame({("m", "u", "vague"): 0.0, ("m", "u", "clear"): 1.0})
    found = with_ambiguity(episodes, tasks, WordIndex(catalogue.products), truth)
    assert found[["task_id", "fitting"]].to_numpy().tolist() == [["clear", "1 to 3"], ["vague", "4 to 12"]]
    assert math.isnan(found["untold"][0]) and found["untold"][1] == 2
    assert with_ambiguity(episodes, tasks, WordIndex(catalogue.products), None)["untold"].isna().all()


def test_each_policy_is_compared_with_itself_under_other_profiles():
    played = pd.concat(
        frame({(m, f"u{i}", f"t{i}"): value for m in ("SFT", "RL") for i in range(3)}).assign(
            profiles=profiles
        )
        for profiles, value in {OWN: 0.75, FOREIGN: 0.25, NONE: 0.5}.items()
    )
    worth = worth_of_profiles(played, "result_final").set_index("comparison")["difference"]
    assert worth.to_dict() == {
        "SFT: own profile - another user's profile": 0.5,
        "SFT: own profile - no profile": 0.25,
        "RL: own profile - another user's profile": 0.5,
        "RL: own profile - no profile": 0.25,
    }


def test_the_gain_with_the_own_profile_is_compared_with_that_with_anothers():
    results = {
        OWN: {"SFT": (0.4, 0.6), "RL": (0.8, 1.0)},
        FOREIGN: {"SFT": (0.3, 0.5), "RL": (0.4, 0.6)},
        NONE: {"SFT": (0.1,), "RL": (0.3,)},  # on fewer tasks, which must not count
    }
    played = pd.concat(
        frame({(m, f"u{i}", f"t{i}"): v for m, values in runs.items() for i, v in enumerate(values)}).assign(
            profiles=profiles
        )
        for profiles, runs in results.items()
    )
    effect = profile_effect(played, "SFT", "RL", "result_final")
    assert effect["difference"].tolist() == pytest.approx([0.1, 0.4, 0.4, 0.0, 0.1, 0.3])
    assert set(effect["n_tasks"]) == {2} and "p" not in effect


def test_success_by_rank():
    rows = [("a", "search", r) for r in (1.0, 0.8, 0.7, 0.1, 0.0)] + [
        ("a", "review", 0.9),
        ("b", "recommend", 0.9),
    ]
    frame = pd.DataFrame(rows, columns=["method", "type", "result_final"])
    table = success_by_rank(frame).set_index(["method", "type"])
    assert table.loc[("a", "search")].tolist() == pytest.approx([0.2, 0.4, 0.8, 5])
    assert table.loc[("b", "recommend")].tolist() == [0, 1, 1, 1]
    assert len(table) == 2
    alone = success_by_rank(frame[frame["type"] == "search"])
    assert list(alone) == ["method", "rank 1", "rank <= 3", "rank <= 10", "episodes"]


def test_our_rows_stand_below_the_papers_for_what_was_played():
    flat = {"preset": "smoke", "source": "", "data_dir": "", "output_dir": "", "seed": None}
    smoke = load_settings("05_orion_sft", SftNotebook, flat | {"stored_runs_only": False})
    results = {"SFT": 0.5, "GRPO": 1.0, "PPO": 1.0, "new": 0.0}
    played = frame({(method, "u", "a"): result for method, result in results.items()})
    shown = ["SFT", "GRPO", "new"]  # of the last the paper has no row
    table = orion_rows(played.assign(tokens=900.0, usd=0.0), "Table 1", shown, smoke)
    printed = [PRINTED["Table 1"][name] for name in ("SFT", "GRPO")]
    assert list(table["row"]) == [*printed, *(f"small model, 0.7M parameters ({method})" for method in shown)]
    assert table["source"].tolist() == ["Orion, Table 1"] * 2 + ["here"] * 3
    assert table["data"].tolist()[2:] == ["embedded world"] * 3
    assert table["search", "result accuracy"].tolist() == [55.5, 62.5, 50, 100, 0]
    assert not {"recommend", "review", "overall"} & set(table.columns.get_level_values(0))


def test_what_models_will_be_asked_has_a_row_for_each_role_that_one_plays(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    counts = {"profiled": 2, "taught": 10, "judged": 8, "played": 20}
    assert model_calls(OrionPlayers(), **counts).empty
    asked = OrionPlayers(teacher="openai:gpt-4o-mini", judge="openai:gpt-4o-mini")
    rows = model_calls(asked, **counts).set_index("role")
    assert dict(rows["calls"]) == {"teacher": 40, "judge": 32} and (rows["US dollars"] > 0).all()
    assert list(model_calls(asked, judged=8)["role"]) == ["judge"]


def test_outcomes_of_a_role_play_begin_with_what_was_kept():
    table = role_play_outcomes(RolePlay((1, 2), Counter({"malformed": 1, "no success": 2})))
    assert table["outcome"].tolist() == ["kept", "no success", "malformed"]
    assert table["share"].tolist() == [0.4, 0.4, 0.2]


def test_what_a_training_began_with_stands_beside_what_it_gained():
    rows = [("SFT", 0, 0.5), ("SFT", 1, 0.7), ("GRPO", 0, 0.8), ("GRPO", 1, 0.6)]
    means = pd.DataFrame(rows, columns=["method", "seed", "mean"]).assign(type="search")
    steps = [(f"GRPO, seed {seed}", step, 0.1 * step, seed, 0.0) for seed in (1, 0) for step in range(4)]
    curves = pd.DataFrame(steps, columns=["run", "step", "entropy", "asks", "reward_std"])
    table = starts_and_gains(means, curves, "SFT", steps=2).set_index("run")
    assert list(table.index) == ["GRPO, seed 1", "GRPO, seed 0"] and list(table["questions"]) == [1, 0]
    assert table.loc["GRPO, seed 0", "entropy"] == pytest.approx(0.15)  # step 0 is before the first
    assert table["SFT: search"].tolist() == [0.7, 0.5]
    assert table["gain: search"].tolist() == pytest.approx([-0.1, 0.3])


def test_a_note_on_one_seed_tells_the_noise_where_it_was_measured():
    noise = {"search": 0.14, "overall": 0.0512}
    assert of_one_seed(noise).endswith("Noise of seeds (notebook 07): search 0.14, overall 0.051.")
    assert of_one_seed(None).endswith("not measured at this preset.")


def test_what_is_learned_from_is_shown_escaped_with_inline_styles(tokenizer):
    talk = [
        {"role": "user", "content": "<script>alert(1)</script>"},
        {"role": "assistant", "content": "<think>open: color</think>"},
    ]
    page = show_tokens(tokenizer, tokenize_conversation(tokenizer, talk)).html
    assert "<script>" not in page and "&lt;think&gt;" in page
    assert "<style" not in page and page.count("white-space:pre-wrap") > 10
    learned, given = (
        page.index("#9fd3f5", page.index("given: ")),
        page.index("#ececec", page.index("given: ")),
    )
    assert given < learned


def test_a_card_is_shown_as_text_so_that_its_headings_are_none_of_the_notebooks(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n\n| a | <b> |\n")
    page = show_card(tmp_path).html
    assert "# A model" in page and "<h1" not in page and "&lt;b&gt;" in page and "license" not in page
