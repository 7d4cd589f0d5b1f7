"""Who learns from what under each protocol; trainings on a tiny model are found again."""

from types import SimpleNamespace

import pytest

from pwagents.errors import DataError
from pwagents.schema import Action
from pwagents_old.puma.agent import call_of
from pwagents_old.puma.labels import Label, as_text, carry_out, choose_pair, part
from pwagents_old.puma.memory import RECOMMEND, SEARCH
from pwagents_old.puma.play import other_seed
from pwagents_old.puma.settings import NO_DPO, NO_MEMORY, NO_SFT, PLUS, PUMA, UNTUNED, PreferenceSettings
from pwagents_old.puma.study import PumaStudy
from pwagents_old.puma.train import PumaModels
from pwagents_old.puma.views import ids_note, label_examples, outcome_counts, pair_examples
from pwagents_old.puma.worlds import load_worlds, purchases_to_learn_from

from .conftest import CIRCUMSTANCES, changed


def with_study(settings, **changes):
    return settings.changed(study=settings.study.changed(**changes))


def test_further_users_are_trained_on_and_none_of_them_is_tested(tiny, study):
    worlds = study.worlds
    trained = {task.user_id for task in worlds.train_tasks}
    assert trained and not trained & worlds.tested.behaviors.keys()
    assert {task.user_id for task in worlds.tasks} <= worlds.tested.behaviors.keys()
    for user, behaviors in worlds.tested.behaviors.items():  # the same people in both
        assert worlds.learned.behaviors[user] == behaviors
    # Without further users the tested ones are trained on; both sorts of task can be few.
    own, few = (load_worlds(with_study(tiny, training_users=0, train_tasks=n, test_tasks=4)) for n in (0, 3))
    assert own.learned is own.tested and own.train_tasks == list(own.tested.tasks["train"])
    assert str(own).startswith(f"{len(own.train_tasks):,} train tasks of 8 users, 4 test tasks")
    assert (len(few.train_tasks), len(few.tasks)) == (3, 4)


def test_published_all_tasks_stay_and_all_before_a_task_may_be_known(tiny, study):
    settings = with_study(tiny, protocol="published", test_tasks=0)
    worlds = load_worlds(settings)
    assert worlds.tasks == list(worlds.tested.tasks["test"]) and worlds.n_left_out == (0, 0)
    published = PumaStudy(worlds, settings, study.base).begun
    for each in published:
        assert each.state.history == worlds.learned.before(each.task.user_id, each.task.timestamp)
    known = {each.task.task_id: len(each.state.history) for each in published}
    assert any(known[each.task.task_id] > len(each.state.history) for each in study.begun)


def test_the_shop_to_learn_in_knows_nothing_from_the_first_train_task_on(study):
    world, bought = study.worlds.learned, purchases_to_learn_from(study.worlds)
    for user in {task.user_id for task in world.tasks["train"]}:
        first = min(world.first_task(user, "train"), study.worlds.date)
        assert bought[user] == [b.parent_asin for b in world.before(user, first)]
    (recommender,) = study.learning_shop.recommenders.recommenders
    assert {*recommender.index} <= {asin for own in bought.values() for asin in own}


def test_labels_and_calls_are_worth_what_they_reach_in_the_shop_to_learn_in(study):
    worth = study.worth_of_labels(["published", "leak_free"]).set_index(["task", "target"])
    assert list(worth.columns) == ["instruction alone", "published", "leak-free", "tasks"]
    review, search = worth.loc["review", "all"], worth.loc["search"]["tasks"]
    assert review["published"] == pytest.approx(1, abs=1e-4) and review["tasks"] > 0
    assert search["all"] == search.drop("all").sum()
    asked = next(each for each in study.begun if each.function == SEARCH)
    queries = (study.worlds.products[asked.task.target].title, "qqq", "")  # the last one is a malformed call
    assert [carry_out(asked, call_of(SEARCH, each), study.start) for each in queries] == [1.0, 0.0, 0.0]


def test_every_task_pairs_the_first_of_the_best_with_the_last_of_the_worst(begun):
    for scores, chosen, rejected, outcome in CIRCUMSTANCES["pairs"]:
        pair = choose_pair(begun["query"], scores)
        assert (pair.chosen, pair.rejected, pair.outcome) == (chosen, rejected, outcome)
        assert (pair.best, pair.worst) == (max(scores.values()), min(scores.values()))
    # All settings are judged by the same held-out pairs that differ.
    pairs = [choose_pair(begun["query"], each) for each in [{"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.5}] * 4]
    every, judges = part(pairs, PreferenceSettings(held_out=0.5))
    differing, same = part(pairs, PreferenceSettings(held_out=0.5, pairs="differing"))
    assert every == pairs[:4] and differing == pairs[:4:2] and judges == same == pairs[4::2]
    assert part(pairs, PreferenceSettings()) == (pairs, pairs[::2])  # none is held out


@pytest.fixture(scope="module")
def made(study):
    """Trainings: of step 2 for PUMA on labels, then on pairs that are all alike."""
    models, methods = PumaModels(study), study.settings.methods()
    searches = [each for each in study.begun if each.function == SEARCH]
    pairs = [choose_pair(each, {"red mug": 1.0, "blue": 0.0}) for each in searches]
    writer, rows = models.fine_tuned(methods[PUMA]), models.preference_rows(pairs, methods[PUMA])
    improved = models.preferred(writer, rows, study.settings.dpo)
    return SimpleNamespace(models=models, methods=methods, writer=writer, rows=rows, improved=improved)


def test_rows_are_prompts_in_plain_text_and_bare_parameters(study, made):
    labels, rows = study.labels("leak_free")[0], made.models.rows(made.methods[PUMA])
    for (begun, parameter), row in zip(labels, rows, strict=True):
        assert begun.state.instruction in row["prompt"] and begun.function in row["prompt"]
        assert row["completion"] == as_text(parameter)
    # Without memory recommendations are trained all the same.
    bare = made.models.rows(made.methods[NO_MEMORY])
    assert [row["completion"] for row in bare] == [row["completion"] for row in rows]
    assert all("Memory: \n" in row["prompt"] for row in bare)
    # Numbers take the place of ids.
    numbered = [row for row in made.models.rows(made.methods[PLUS]) if RECOMMEND in row["prompt"]]
    assert numbered and all(n.strip().isdigit() for row in numbered for n in row["completion"].split(","))
    assert not any(asin in row["prompt"] for row in numbered for asin in study.memory.products)


def test_what_was_trained_is_found_again_and_nothing_else(study, made):
    methods, settings = made.methods, study.settings
    trainer = settings.sft.trainer | {"save_steps": 7, "report_to": "tensorboard"}
    tracked = settings.sft.changed(trainer=trainer, sharding="fsdp")
    stored = PumaModels(changed(study, sft=tracked, stored_runs_only=True))
    assert stored.fine_tuned(methods[PUMA]) == made.writer
    assert stored.preferred(made.writer, made.rows, settings.dpo) == made.improved
    with pytest.raises(DataError, match="stored_runs_only"):
        stored.fine_tuned(methods[NO_MEMORY])
    other = other_seed(study, settings.seeded(5))  # which changes trainings alone, and no base that is given
    assert (other.seed, other.settings.sft.seed, other.base) == (study.seed, 5, study.base)
    assert other.shop is study.shop and other.labels("published") == study.labels("published")


def test_without_sft_it_is_the_base_and_without_pairs_the_model_stays_what_it_is(study, made):
    assert made.models.fine_tuned(made.methods[NO_SFT]) == study.base
    assert made.models.preferred(made.writer, [], study.settings.dpo) == made.writer
    assert made.models.train(made.methods[UNTUNED], "as set")[1:] == (study.base, study.base)
    assert made.models.train(made.methods[NO_DPO], "as set").writer == made.writer


def test_candidates_are_sampled_once_and_preferences_chosen_on_held_out_train_pairs(study, made, monkeypatch):
    puma, dpo = made.methods[PUMA], study.settings.dpo
    pairs = made.models.pairs(made.writer, puma, dpo)
    assert len(pairs) == dpo.train_tasks  # every task makes one
    assert PumaModels(changed(study, stored_runs_only=True)).pairs(made.writer, puma, dpo) == pairs
    stiff = {"name": "stiff", "trainer": {"beta": 0.5}}
    tried = PumaModels(changed(study, dpo=dpo.changed(held_out=0.5, variants=(stiff,))))
    pairs = [choose_pair(each, {"red": 1.0, "blue": 0.0}) for each in study.begun[:8]]
    monkeypatch.setattr(PumaModels, "pairs", lambda *_: pairs)
    name, table = tried.choose_preferences(puma)
    assert list(table["preferences"]) == ["as set", "stiff"]
    assert list(table["pairs trained on"]) == list(table["pairs judged"]) == [4, 4]
    assert name == table.loc[table["accuracy"].idxmax(), "preferences"] and table["margin"].notna().all()


def test_outcomes_labels_and_pairs_are_shown_by_type_and_who_cannot_copy_ids_is_named(begun):
    counts = {("review", "labelled"): 2, ("search", "labelled"): 3, ("search", "nothing to say"): 1}
    rows = outcome_counts(counts)[["task", "labelled", "nothing to say"]].values.tolist()
    assert rows == [["search", 3, 1], ["review", 2, 0]] and outcome_counts({}).empty
    labels = [Label(begun[name], parameter) for name, parameter in (("words", "x"), ("early", ("A", "B")))]
    table = label_examples({"published": labels, "leak_free": labels[1:]})
    assert table[["task", "published", "leak_free"]].values.tolist() == [
        ["recommend", "A, B", "A, B"],
        ["review", "x", ""],
    ]
    pairs = [choose_pair(begun["query"], {"a": best, "b": worst}) for best, worst in ((0.5, 0.5), (0.9, 0.0))]
    assert pair_examples(pairs).splitlines()[1:] == ["  chosen,   0.90: a", "  rejected, 0.00: b"]
    records = []
    for method, ids in (("PUMA", ["AX", "A", "B1"]), ("PUMA+", ["A", "B"])):
        step = SimpleNamespace(action=Action(name="", arguments={"product_sequence": ids}))
        records.append(SimpleNamespace(method=method, trajectory=SimpleNamespace(steps=[step])))
    note = ids_note(records, {"A", "B"})
    assert "PUMA 0.33, PUMA+ 1.00." in note and note.endswith("cannot copy ids in the rows PUMA.")
    assert "cannot" not in ids_note(records[1:], {"A", "B"})
