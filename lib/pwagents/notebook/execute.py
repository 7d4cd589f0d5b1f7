"""Run one notebook with the parameters of a preset; the Makefile calls it from the project's root.

    python -m pwagents.notebook.execute 01_data --preset smoke --output-dir outputs/smoke
    python -m pwagents.notebook.execute 04_puma --preset laptop --output-dir outputs/laptop \
        --changes 'study: {variants: all}'

papermill does the work. Added here: the finished notebook appears only after its last cell has run, two
runs of one notebook cannot overlap, and a failure is told in a few lines.
"""

import argparse
import fcntl
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from pwagents import portable
from pwagents.notebook.settings import PARAMS, read_values

# Errors whose message says all that a user needs.
TOLD_WHOLE = (
    "SettingsError", "DataError", "InfrastructureError", "EndpointError", "RefusedError", "BudgetError",
    "DoesNotFitError", "LaunchError", "OSError",  # the last of a full disk
)  # fmt: skip

_PASSWORD = re.compile(r"//[^/\s\"'@\\]+@")


def run(name: str, preset: str, output_dir: Path, changes: dict[str, Any] | None = None) -> int:
    """:func:`_run`, which a disk that cannot be written ends in one line, without empty files."""
    try:
        return _run(name, preset, output_dir, changes or {})
    except OSError as error:
        partial = _partial(output_dir, name)
        if partial.is_file() and not partial.stat().st_size:
            partial.unlink()
        return _fail(name, str(error))


def _run(name: str, preset: str, output_dir: Path, changes: dict[str, Any]) -> int:
    """Execute ``notebooks/<name>.ipynb`` into ``<output_dir>/notebooks``; 0, or 1 when it failed.

    The notebook reads the preset's parameters by itself (:mod:`pwagents.notebook.settings`).
    """
    if not read_values(PARAMS / preset / "common.yaml").get("portable", True):
        portable.switch_off()  # before the notebook's kernel, which inherits the variables, loads numpy
    parameters = {"preset": preset, "output_dir": str(output_dir), **changes}
    finished = output_dir / "notebooks" / f"{name}.ipynb"
    partial = _partial(output_dir, name)
    partial.parent.mkdir(parents=True, exist_ok=True)

    with open(partial.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _fail(name, f"another process is running this notebook into {output_dir}")
        print(f"[{name}] running with preset {preset}", flush=True)
        start = time.time()
        problem = _execute(Path("notebooks", f"{name}.ipynb"), partial, parameters)
        _strip_passwords(partial)
        if problem:
            return _fail(name, f"{problem}\n[{name}] the notebook as far as it came: {partial}")
        _settle_output(partial)
        # Dated by its start, so that what was edited during the run makes it run again.
        os.utime(partial, (start, start))
        os.replace(partial, finished)
    minutes, seconds = divmod(round(time.time() - start), 60)
    print(f"[{name}] done in {minutes} min {seconds:02d} s: {finished}", flush=True)
    return 0


def _partial(output_dir: Path, name: str) -> Path:
    """Where a notebook stands while it runs."""
    return output_dir / "notebooks" / ".partial" / f"{name}.ipynb"


def _execute(notebook: Path, partial: Path, parameters: dict) -> str:
    """Run all cells, writing to ``partial`` on the way; what went wrong, or an empty text."""
    # jsonschema imports it to check international addresses, of which there are none here: at its import it
    # builds a parser, which takes three seconds.
    sys.modules.setdefault("rfc3987_syntax", None)
    # Imported late because it takes seconds: what can be refused is refused before.
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError

    quiet_kernel = ["--log-level=CRITICAL"]
    try:
        execute_notebook(notebook, partial, parameters, kernel_name="python3", extra_arguments=quiet_kernel)
    except PapermillExecutionError as error:
        told_whole = error.ename in TOLD_WHOLE
        reason = [f"{error.ename}: {error.evalue}"] if told_whole else error.traceback
        return "\n".join([f"failed in cell In [{error.exec_count}]", *reason])
    except DeadKernelError:
        return "the kernel died (killed, or out of memory)"
    return ""


def _settle_output(path: Path) -> None:
    """Keep of each progress bar only its last state; collapse parameters, which the settings show."""
    import nbformat
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor

    notebook = nbformat.read(path, as_version=4)
    notebook, _ = CoalesceStreamsPreprocessor().preprocess(notebook, {})
    for cell in notebook.cells:
        if {"parameters", "injected-parameters"} & set(cell.metadata.get("tags", ())):
            cell.metadata["jupyter"] = {"source_hidden": True}
    nbformat.write(notebook, path)


def _strip_passwords(path: Path) -> None:
    """Of a notebook: cells are copied as they are, also those whose settings were refused."""
    if path.exists():
        path.write_text(without_passwords(path.read_text("utf-8")), "utf-8")


def without_passwords(text: str) -> str:
    """``text`` without the user:password@ of any URL."""
    return _PASSWORD.sub("//[password]@", text)


def _folder(text: str) -> Path:
    """The path of a folder; an empty one would be the project's root."""
    if not text.strip():
        raise argparse.ArgumentTypeError("empty; expected a folder")
    return Path(text)


def _changes(text: str) -> dict[str, Any]:
    """Parameters of a notebook, as YAML; whether it has them, the notebook says."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r}; expected YAML such as 'study: {{variants: all}}'")
    return found


def _fail(name: str, message: str) -> int:
    print(f"[{name}] {without_passwords(message)}", file=sys.stderr, flush=True)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Run one notebook with the parameters of a preset.")
    parser.add_argument("name", help="the notebook, for instance 01_data")
    parser.add_argument("--preset", required=True)
    parser.add_argument("--output-dir", type=_folder, required=True)
    parser.add_argument("--changes", type=_changes, default={}, help="of the preset, as YAML")
    try:
        return run(**vars(parser.parse_args()))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
