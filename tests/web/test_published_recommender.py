"""PersonalWAB's checkpoint: read safely, ranked as the published code ranks, refused where it is another."""

import json

import numpy as np
import pytest
import torch

from pwagents.errors import DataError
from pwagents.web.published_recommender import find_published, load_published
from pwagents.web.sasrec import SasRec
from pwagents.web.settings import SasRecSettings

N_ITEMS = 104_284  # as published
MAX_LENGTH, K = 30, 10


@pytest.fixture(scope="module")
def state():
    """Weights of the published shape: random, and large enough that they tell the items apart."""
    torch.manual_seed(0)
    return {name: w.clone() for name, w in SasRec(N_ITEMS, SasRecSettings()).state_dict().items()}


@pytest.fixture(scope="module")
def numbers():
    drawn = np.random.default_rng(0).choice(np.arange(1, N_ITEMS + 1), size=2000, replace=False)
    return {f"B{i:09d}": int(item) for i, item in enumerate(drawn)}


@pytest.fixture(scope="module")
def files(state, numbers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    torch.save(state, folder / "pwab.pth")
    (folder / "1000_ids.json").write_text(json.dumps(numbers))
    return folder


@pytest.fixture(scope="module")
def recommender(files, numbers):
    return load_published(*find_published(files), products=numbers)


def published_ranking(forward, state, numbers, sequence):
    """The published inference in plain NumPy: score all items, keep those of the map, best ten."""
    items = [numbers[asin] for asin in sequence if asin in numbers]
    if not items:
        return []
    items = items[-MAX_LENGTH:]
    last = forward(state, [0] * (MAX_LENGTH - len(items)) + items, blocks=2, heads=2)[-1]
    scores = state["item_emb.weight"].double().numpy() @ last
    return sorted(numbers, key=lambda asin: (-scores[numbers[asin]], asin))[:K]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 29, 30, 31, 45])
def test_ranks_as_the_published_code(recommender, state, numbers, published_forward, length):
    sequence = [sorted(numbers)[i] for i in np.random.default_rng(length).integers(0, len(numbers), length)]
    sequence.insert(length // 2, "not in the map")
    expected = published_ranking(published_forward, state, numbers, sequence)
    assert recommender.recommend(sequence) == expected and len(expected) == K


def test_without_a_known_product_there_is_no_answer(recommender):
    assert recommender.recommend([]) == recommender.recommend(["not in the map"]) == []


def test_equal_scores_are_ordered_by_id_not_by_item_number(state, tmp_path):
    same = dict(state)
    same["item_emb.weight"] = state["item_emb.weight"].clone()
    same["item_emb.weight"][[500, 20, 7]] = state["item_emb.weight"][20]
    torch.save(same, tmp_path / "pwab.pth")
    (tmp_path / "1000_ids.json").write_text(json.dumps({"B3": 7, "B1": 500, "B2": 20}))
    both = load_published(*find_published(tmp_path), products=["B3", "B1", "B2"])
    assert both.recommend(["B2"] * 4) == ["B1", "B2", "B3"]


def test_only_products_of_the_benchmark_are_recommended(files, numbers):
    some = sorted(numbers)[:25]
    recommender = load_published(*find_published(files), products=[*some, "a product of other data"])
    assert set(recommender.recommend(sorted(numbers)[30:40], k=100)) == set(some)


def test_a_clone_of_the_official_repository_is_found_too(files, tmp_path):
    place = tmp_path / "PersonalWAB/envs/pwab/functions/recommender"
    (place / "checkpoint").mkdir(parents=True)
    (place / "data").mkdir()
    (place / "checkpoint" / "pwab.pth").symlink_to(files / "pwab.pth")
    (place / "data" / "1000_ids.json").symlink_to(files / "1000_ids.json")
    assert find_published(tmp_path) == (
        place / "checkpoint" / "pwab.pth",
        place / "data" / "1000_ids.json",
    )
    (place / "data" / "1000_ids.json").unlink()
    assert find_published(tmp_path) is None


class Malicious:
    def __reduce__(self):
        return (print, ("code of the checkpoint was run",))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: {**s, "head": Malicious()}, "expected a PyTorch checkpoint that holds tensors alone"),
        (lambda s: {k: w for k, w in s.items() if k != "item_emb.weight"}, "record item_emb.weight"),
        (lambda s: {**s, "item_emb.weight": s["item_emb.weight"][0]}, "record item_emb.weight"),
        (lambda s: {**s, "item_emb.weight": s["item_emb.weight"][:, :40]}, "found (104285, 40); expected"),
        (lambda s: {**s, "pos_emb.weight": s["pos_emb.weight"][:21]}, "found (21, 50); expected (31, 50)"),
        (lambda s: {k: w for k, w in s.items() if k != "last_layernorm.bias"}, "found no such tensor"),
        (lambda s: {**s, "user_emb.weight": torch.zeros(3)}, "found (3,); expected no such tensor"),
        (lambda s: [*s.values()], "found list; expected named tensors"),
    ],
)
def test_another_checkpoint_is_refused_and_runs_no_code(state, tmp_path, capsys, spoil, message):
    torch.save(spoil(state), tmp_path / "pwab.pth")
    (tmp_path / "1000_ids.json").write_text('{"B1": 1}')
    with pytest.raises(DataError) as caught:
        load_published(*find_published(tmp_path), products=["B1"])
    assert message in str(caught.value) and "pwab.pth" in str(caught.value)
    assert "was run" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x03\x04 cut off", b"\x80\x02."])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, content):
    (tmp_path / "pwab.pth").write_bytes(content)
    (tmp_path / "1000_ids.json").write_text('{"B1": 1}')
    with pytest.raises(DataError, match=r"pwab\.pth"):
        load_published(*find_published(tmp_path), products=["B1"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON"),
        ("[1]", "found list"),
        ('{"B1": "7"}', "record B1, field 'number': found '7'"),
        ('{"B1": true}', "found True"),
        ('{"B1": 0}', "expected a whole number from 1 to 104284"),
        ('{"B1": 104285}', "expected a whole number from 1 to 104284"),
    ],
)
def test_wrong_item_numbers_are_named(files, tmp_path, content, message):
    (tmp_path / "pwab.pth").symlink_to(files / "pwab.pth")
    (tmp_path / "1000_ids.json").write_text(content)
    with pytest.raises(DataError) as caught:
        load_published(*find_published(tmp_path), products=["B1"])
    assert message in str(caught.value) and "1000_ids.json" in str(caught.value)


def test_the_real_item_numbers_fit_the_published_shape(state, tmp_path, project_root):
    numbers = project_root.parent / "shared" / "data" / "personalwab" / "1000_ids.json"
    if not numbers.exists():
        pytest.skip(f"the published item numbers are not there: {numbers}")
    torch.save(state, tmp_path / "pwab.pth")
    ids = json.loads(numbers.read_text())
    recommender = load_published(tmp_path / "pwab.pth", numbers, products=ids)
    known = list(ids)[:3]
    answer = recommender.recommend(known)
    assert len(recommender.index) == 35_772 and len(answer) == K and set(answer) <= set(ids)
