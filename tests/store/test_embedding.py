"""Embeddings: right, computed once, kept by content."""

import sqlite3

import numpy as np
import pytest

from pwagents import embedding
from pwagents.embedding import DIMENSION, Embedder
from pwagents.errors import InfrastructureError
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
    assert Embedder(cache).cosine(TEXTS[0], TEXTS[0]) == 1.0


def test_what_is_on_disk_needs_no_model_unless_it_is_cut_elsewhere(cache, monkeypatch):
    monkeypatch.setattr(embedding, "_model", lambda max_tokens: pytest.fail("the model was loaded"))
    assert Embedder(cache).encode([*TEXTS, TEXTS[0]]).shape == (4, DIMENSION)
    assert Embedder(cache).encode([]).shape == (0, DIMENSION)
    with pytest.raises(pytest.fail.Exception, match="was loaded"):
        Embedder(cache, max_tokens=4).encode(TEXTS)


def test_alone_an_embedding_depends_on_its_text_only(cache):
    one_by_one = Embedder()
    singles = np.concatenate([one_by_one.encode([text]) for text in TEXTS])
    assert (Embedder().encode(TEXTS[::-1])[::-1] == singles).all()
    with one_core():
        assert (Embedder().encode(TEXTS) == singles).all()
    np.testing.assert_allclose(Embedder(batch_size=64).encode(TEXTS), singles, atol=1e-6)


def test_a_file_that_cannot_be_written_is_named(cache, monkeypatch):
    def refuse(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    embedder = Embedder(cache)
    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(InfrastructureError, match=r"embeddings-\w+\.sqlite: database or disk is full"):
        embedder.encode(["a new text"])


@pytest.mark.parametrize("damage", [b"", bytes(12 * 1024), b"half"])
def test_a_damaged_file_is_set_aside_and_a_damaged_vector_embedded_again(tmp_path, damage, capsys):
    whole = Embedder(tmp_path).encode(TEXTS)
    (file,) = tmp_path.iterdir()
    if damage:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if damage == b"half" else damage)
    else:
        with sqlite3.connect(file) as db:
            ((first,),) = db.execute("SELECT vector FROM embedding WHERE rowid = 1")  # of another text
            for i, vector in enumerate([bytes(4 * DIMENSION), first, bytes(7)]):
                db.execute("UPDATE embedding SET vector = ? WHERE rowid = ?", [vector, i + 1])
    for _ in range(2):  # the second time from the mended file
        assert (Embedder(tmp_path).encode(TEXTS) == whole).all()
    out = capsys.readouterr().out
    assert ("3 embeddings do not fit their checksums, and are made again" in out) == (not damage)
    assert (f"{file} is damaged" in out) == bool(damage) == file.with_name(f"{file.name}.damaged").exists()
