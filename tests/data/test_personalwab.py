"""PersonalWAB's files become a benchmark: values as published, dirty ones mended, a part chosen by seed."""

import json
import os
from pathlib import Path

import pytest

from pwagents.data.files import FOLDER_IN_CLONE
from pwagents.data.personalwab import load_personalwab, read_profiles

from .conftest import DAY, FIRST, stool

DATA = Path(os.environ.get("PWAGENTS_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
REAL_PROFILES = DATA / "personalwab" / "user_profiles.json"


# Sound files


@pytest.mark.parametrize("place", [".", FOLDER_IN_CLONE])
def test_values_of_sound_files_stay_as_published(personalwab_files, place):
    personalwab_files.put("all_products.B000000002.price", 20)
    benchmark = load_personalwab(personalwab_files.write(place))
    assert (benchmark.name, dict(benchmark.repairs)) == ("personalwab", {})
    assert list(benchmark.behaviors) == ["UANN", "UBOB"]
    assert list(benchmark.products) == [f"B00000000{i}" for i in range(6)]
    assert {split: len(tasks) for split, tasks in benchmark.tasks.items()} == {"train": 6, "test": 6}
    product = benchmark.products["B000000003"]
    assert (product.category, product.price, product.store) == ("Home_and_Kitchen", 19.99, "Stoolworks")
    assert repr(benchmark.products["B000000002"].price) == "20"  # a whole number stays one
    assert product.features == ("Solid oak", "Four <b>legs</b>")
    assert product.details == {"Color": "Brown", "Ranks": {"Stools": 3}}
    assert product.flat_details == {"Color": "Brown", "Ranks": "Stools: 3"}
    behavior = benchmark.behaviors["UANN"][3]
    assert (behavior.parent_asin, behavior.timestamp) == ("B000000003", 1_600_259_200_000)
    assert behavior.review.text == "It holds me well.<br />It came on day 3."
    task = benchmark.tasks["test"][2]
    assert (task.user_id, task.type, task.instruction) == ("UANN", "review", "Please review a stool for me.")
    assert (task.target, task.timestamp) == ("B000000005", 1_600_432_000_000)
    assert task.review == benchmark.behaviors["UANN"][5].review
    profile = benchmark.profiles["UANN"]
    assert (profile.occupation, profile.tone_and_style) == ("Nurse", "Terse")


def test_task_ids_are_made_where_there_are_none(personalwab_files):
    train = personalwab_files.records["instructions"]["train"]
    once, more, again = ({"task": f"Please search a stool {how}."} for how in ("once", "more", "again"))
    train[1:1] = [train[0] | once, train[0] | more | {"task_id": "mine"}, train[0] | again]
    ids = [task.task_id for task in load_personalwab(personalwab_files.write()).tasks["train"]]
    made = "UANN-1600345600000-B000000004-search"
    assert ids[:4] == [made, f"{made}-2", "mine", f"{made}-3"]


def test_history_and_tasks_alone_may_know_a_product(personalwab_files):
    for i in (2, 5):
        personalwab_files.put(f"all_products.B00000000{i}", ...)
    for user in ("UANN", "UBOB"):
        personalwab_files.records["user_history"][user].pop()
    benchmark = load_personalwab(personalwab_files.write())
    assert list(benchmark.products)[-2:] == ["B000000002", "B000000005"]
    assert benchmark.products["B000000002"].title == "Sturdy Wooden Kitchen Stool Number2, Oak"
    assert list(benchmark.repairs.values()) == [2, 6]  # products added; tasks whose target no history has


@pytest.mark.skipif(not REAL_PROFILES.is_file(), reason=f"no published profiles at {REAL_PROFILES}")
def test_published_profiles():
    profiles = read_profiles(REAL_PROFILES)
    assert len(profiles) == 1000
    published = json.loads(REAL_PROFILES.read_text())
    for user, profile in profiles.items():
        assert {"user_profile": profile.model_dump(by_alias=True)} == published[user]
    assert {"Nurse", "Chef"} <= {profile.occupation for profile in profiles.values()}


def test_history_is_put_in_time_order_unless_as_published_and_equal_times_keep_theirs(personalwab_files):
    history = personalwab_files.records["user_history"]["UANN"]
    history.reverse()
    history[2]["review"]["timestamp"] = history[3]["review"]["timestamp"]
    benchmark = load_personalwab(personalwab_files.write())
    assert [b.parent_asin[-1] for b in benchmark.behaviors["UANN"]] == ["0", "1", "3", "2", "4", "5"]
    assert dict(benchmark.repairs) == {"history put in time order": 1}
    benchmark = load_personalwab(personalwab_files.folder, protocol="published")
    assert [b.parent_asin[-1] for b in benchmark.behaviors["UANN"]] == ["5", "4", "3", "2", "1", "0"]
    past = benchmark.history(benchmark.tasks["train"][0], "train", "published")
    assert [b.parent_asin[-1] for b in past] == ["3", "2", "1", "0"] and not benchmark.repairs


def test_what_is_nobodys_is_dropped_and_counted(personalwab_files):
    records, whole = personalwab_files.records, load_personalwab(personalwab_files.write())
    records["user_history"]["None"] = records["user_history"]["UANN"]
    for place in (0, 2):
        records["instructions"]["test"].insert(place, records["instructions"]["test"][0] | {"user_id": None})
    benchmark = load_personalwab(personalwab_files.write())
    assert benchmark.behaviors == whole.behaviors and benchmark.tasks == whole.tasks
    assert dict(benchmark.repairs) == dict(whole.repairs) | {
        "history of nobody ('None') dropped": 1,
        "task of nobody dropped (the first: test task 0)": 2,
    }


def test_product_and_user_listed_twice_count_where_they_are_first(personalwab_files):
    folder = personalwab_files.write()
    second = stool(1) | {"title": "Second"}
    (folder / "all_products_part_3.json").write_text(json.dumps({"B000000001": second}))
    (folder / "user_history_part_3.json").write_text('{"UANN": [], "UNEW": []}')
    (folder / "user_profiles.json").write_text('{"UANN": {"user_profile": {}}}')
    benchmark = load_personalwab(folder)
    assert not benchmark.profiles
    assert benchmark.products["B000000001"].title != "Second"
    assert len(benchmark.behaviors["UANN"]) == 6
    assert dict(benchmark.repairs) == {
        "history of a user listed again dropped (the first is kept)": 1,
        "product listed again dropped (the first is kept)": 1,
        "user with an empty history": 1,
        "user without a published profile": 3,
    }


# A part of the users and products


@pytest.fixture
def many_users(personalwab_files):
    """Twelve users: the first six know product 0, the others product 1; four products are nobody's.

    Each buys theirs twice; the second time is a test task of five of them.
    """
    records, again = personalwab_files.records, FIRST + 9 * DAY
    records["user_history"] = {f"U{i:02}": [personalwab_files.purchase(i // 6)] for i in reversed(range(12))}
    for history in records["user_history"].values():
        history.append(history[0] | {"review": history[0]["review"] | {"timestamp": again}})
    tasks = [personalwab_files.task(f"U{i:02}", i // 6, "search") for i in reversed(range(12))]
    records["instructions"] = {"train": tasks, "test": [task | {"timestamp": again} for task in tasks[:5]]}
    records["user_profile"] = dict.fromkeys(records["user_history"], records["user_profile"]["UANN"])
    return personalwab_files.write()


def test_seed_chooses_users_and_their_tasks_alone_stay(many_users):
    parts = [load_personalwab(many_users, n_users=5, seed=seed) for seed in (0, 0, 1)]
    assert parts[0] == parts[1]
    assert len({tuple(part.behaviors) for part in parts}) == 2
    for part in parts:
        assert len(part.behaviors) == len(part.profiles) == 5
        assert list(part.behaviors) == sorted(part.behaviors)
        assert {task.user_id for task in part.tasks["train"]} == set(part.behaviors)
        assert {task.user_id for task in part.tasks["test"]} <= set(part.behaviors)
    fewer = load_personalwab(many_users, n_users=3, seed=0)
    assert fewer.behaviors.keys() < parts[0].behaviors.keys()


# Tasks against histories and against each other


@pytest.mark.parametrize("shift", [-1, 1])
def test_tasks_agree_with_purchases_and_with_each_other_unless_as_published(personalwab_files, shift):
    """A task a millisecond later than its purchase, and the agent would see its own target and review."""
    sound = load_personalwab(personalwab_files.write())
    instructions = personalwab_files.records["instructions"]
    first = dict(instructions["test"][0])
    instructions["test"][1]["timestamp"] += shift
    instructions["test"].append(first)
    instructions["train"].append(first)
    benchmark = load_personalwab(personalwab_files.write())
    assert benchmark.tasks["train"] == sound.tasks["train"] and len(benchmark.tasks["test"]) == 6
    assert benchmark.tasks["test"][1].timestamp == sound.tasks["test"][1].timestamp
    assert dict(benchmark.repairs) == {
        "task at another time than its purchase, dated by the purchase": 1,
        "task listed again dropped (the first is kept)": 1,
        "train task of a purchase that is tested dropped": 1,
    }
    published = load_personalwab(personalwab_files.folder, protocol="published")
    for split, records in instructions.items():
        assert [t.timestamp for t in published.tasks[split]] == [each["timestamp"] for each in records]
