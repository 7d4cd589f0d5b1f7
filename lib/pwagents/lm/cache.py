"""Trained models as folders named by what they were made from: the same training never runs twice.

Beside ``<name>-<12 hex digits>`` a training under way lies in ``.<name>-<12 hex digits>.part``, its
checkpoints with it, so that a killed one goes on; finished, the folder is renamed: a name without the dot
says that the model is whole.

What trainings by transformers' Trainer need beside it: whole checkpoints, a bar, a watch on the loss.

Model cards: the README.md of a model's folder, made of facts that the training hands over.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from pwagents.errors import DataError
from pwagents.progress import progress
from pwagents.project import write_aside

if TYPE_CHECKING:
    from transformers import TrainerCallback


KEY = "made_from.json"
LIBRARIES = ("torch", "transformers", "trl")  # other versions may give other weights


def cached_model(
    root: Path | str,
    name: str,
    key_parts: Mapping[str, Any],
    make: Callable[[Path], object],
    *,
    stored_only: bool = False,
) -> Path:
    """The folder of the model that follows from ``key_parts``; made by ``make`` where it is not there yet.

    Of several processes one makes it and the others wait.

    Args:
        root: folder of all models; removing any folder in it is safe, it is made again.
        name: what the model is, for people ("base", "sft").
        key_parts: all that the model follows from (hashes of data, settings, seed, :func:`source_hash`), as
            JSON values. Machine and library versions are added.
        make: writes model, tokenizer and card into the folder it is given. After a kill it gets the same
            folder again, with what it left there.
        stored_only: make nothing.

    Raises:
        TypeError, ValueError: ``key_parts`` is no JSON.
        DataError: the model is not there, and nothing may be made.
    """
    facts = {**key_parts, "machine": platform.machine(), "versions": {lib: version(lib) for lib in LIBRARIES}}
    key = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    folder = Path(root) / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    if stored_only:
        expected = f"{folder.name}; run once with stored_runs_only=False, same settings, same data"
        raise DataError(folder.parent, name, "model", "nothing", expected)
    part = folder.with_name(f".{folder.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the process ends, however it does
        if not folder.exists():
            part.mkdir(exist_ok=True)
            make(part)
            write_aside(part / KEY, json.dumps(facts, sort_keys=True, ensure_ascii=False, indent=2) + "\n")
            os.replace(part, folder)
    return folder


def hash_of(content: Any) -> str:
    """16 hex digits over JSON values such as training examples, for ``key_parts``."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def source_hash(*modules: ModuleType) -> str:
    """16 hex digits over the source of modules: when the code of a training changes, so must its key."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()[:16]


def last_checkpoint(folder: Path) -> str | None:
    """The last checkpoint written to its end, for ``resume_from_checkpoint``; broken ones are removed.

    Trainers write their state last. A folder without checkpoints gives None: a training from the beginning.
    """
    found = {int(path.name.split("-")[1]): path for path in folder.glob("checkpoint-*") if path.is_dir()}
    for step in sorted(found, reverse=True):
        try:
            json.loads((found[step] / "trainer_state.json").read_text("utf-8"))
            return str(found[step])
        except (OSError, ValueError):
            shutil.rmtree(found[step])
    return None


def watch(what: str) -> "TrainerCallback":
    """A progress bar named ``what``, and an end to a training whose loss is no number any more.

    Raises (while training):
        FloatingPointError: the loss is infinite or not a number.
    """
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            logging.getLogger("transformers.trainer_utils").addFilter(_no_word_on_mtime)
            off = not state.is_world_process_zero
            self.bar = progress(total=state.max_steps, desc=what, unit="step", disable=off)
            self.bar.update(state.global_step)

        def on_step_end(self, args, state, control, **_):
            self.bar.update()

        def on_log(self, args, state, control, logs, **_):
            if "loss" not in logs:
                return
            if not math.isfinite(logs["loss"]):
                message = f"{what}: the loss is {logs['loss']} at step {state.global_step}"
                raise FloatingPointError(f"{message}; a lower learning rate may do")
            self.bar.set_postfix(loss=f"{logs['loss']:.3f}", refresh=False)

        def on_train_end(self, args, state, control, **_):
            self.bar.close()

    return Watch()


def _no_word_on_mtime(record: logging.LogRecord) -> bool:
    """Checkpoints of a fast training are no second apart; transformers then goes by their numbers."""
    return "mtime may not be reliable" not in record.getMessage()


CARD = "README.md"


def write_card(
    folder: Path | str,
    title: str,
    what: str,
    trained_on: Mapping[str, object],
    training: Mapping[str, object],
    results: pd.DataFrame | None = None,
    base: str | None = None,
    licence: str = "mit",
    tags: tuple[str, ...] = (),
    use: str = "",
) -> None:
    """Write ``folder/README.md``: YAML as Hugging Face reads it, then Markdown for people.

    Args:
        title: the model's name.
        what: what it is and is not, in a few sentences.
        trained_on: the data as fact -> value (name, number of trajectories, content hash ...).
        training: the settings as name -> value, for instance ``asdict`` of a group of settings.
        results: measured numbers with a row for each comparison, as in the notebook's table.
        base: the model it was trained from: an id at Hugging Face, or a folder, of which the name is told.
        use: Python that shows how the model is used; empty: as any chat model.
    """
    parts = [f"# {_line(title)}", what.strip()]
    parts += ["## Trained on", _facts(trained_on), "## Training", _facts(training)]
    if results is not None:
        parts += ["## Results", _table(list(map(str, results.columns)), results.itertuples(index=False))]
    parts += ["## Use", f"```python\n{(use or _USE).strip()}\n```"]
    header = _header(title, base, licence, tags)
    write_aside(Path(folder) / CARD, f"---\n{header}\n---\n\n" + "\n\n".join(parts) + "\n")


def _header(title: str, base: str | None, licence: str, tags: tuple[str, ...]) -> str:
    from huggingface_hub import ModelCardData

    named = Path(base).name if base is not None and Path(base).is_absolute() else base
    return ModelCardData(
        model_name=_line(title),
        license=licence,
        base_model=named,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["personalized-web-agents", *tags],
    ).to_yaml()


def _facts(facts: Mapping[str, object]) -> str:
    return _table(["", ""], facts.items())


def _table(headings: list[str], rows) -> str:
    lines = [map(_cell, headings), ["---"] * len(headings), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(value: object) -> str:
    """One line of Markdown that shows the value as it is; 6 significant digits of a fraction."""
    text = f"{value:.6g}" if isinstance(value, float) else _line(str(value))
    return re.sub(r"([\\`*_\[\]<>&|~#$])", r"\\\1", text)


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


_USE = """
from pwagents.llm.local_model import LocalModel

model = LocalModel("path/to/this/folder")
print(model.complete([{"role": "user", "content": "Hello"}], max_tokens=20).text)
"""
