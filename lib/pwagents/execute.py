"""Run one notebook at a preset, from the project's root, as the Makefile does.

    python -m pwagents.execute 01_data --preset smoke --output-dir outputs/smoke

papermill does the work. The finished notebook appears only after its last cell has run, two runs of one
notebook cannot overlap, no password of a URL stays in it, and a failure is a message of a few lines.
"""

import argparse
import fcntl
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pwagents import portable
from pwagents.settings import read_changes, settings_values
from pwagents.urls import without_passwords

# Errors whose message says all that a user needs; the last is a full disk's.
NO_TRACEBACK = ("SettingsError", "DataError", "InfrastructureError", "EndpointError", "RefusedError",
                "BudgetError", "DoesNotFitError", "LaunchError", "StaleCodeError", "OSError")  # fmt: skip


def execute(name: str, preset: str, output_dir: Path, changes: str = "{}") -> None:
    """Execute ``notebooks/<name>.ipynb`` into ``<output_dir>/notebooks``.

    Raises:
        SystemExit: it failed; says why, and where the notebook is as far as it came.
        SettingsError: ``changes`` is no YAML of names and values.
        OSError: the disk is full, say.
    """
    import nbformat
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError

    if output_dir.resolve() == Path.cwd():  # an empty one, too: the notebook would replace itself
        sys.exit(f"[{name}] the results' folder is the project's; expected another one")
    parameters = {"preset": preset, "output_dir": str(output_dir), **read_changes(changes)}
    if not settings_values(name, parameters)["portable"]:
        portable.switch_off()  # before the kernel, which inherits the variables, loads numpy
    start, problem = time.time(), ""
    finished, partial = (output_dir / "notebooks" / f"{place}{name}.ipynb" for place in ("", ".partial/"))
    partial.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as own, open(partial.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"[{name}] another process is running this notebook into {output_dir}")
        print(f"[{name}] running with preset {preset}", flush=True)

        # The kernel python3 is this environment's, whichever others the variable names. What users
        # tell IPython and matplotlib for notebooks of their own changes nothing here.
        os.environ |= {"JUPYTER_PATH": f"{sys.prefix}/share/jupyter", "IPYTHONDIR": own}
        os.environ["MATPLOTLIBRC"] = os.devnull
        for variable in ("PYTHONSTARTUP", "MPLBACKEND"):
            os.environ.pop(variable, None)
        options = {"kernel_name": "python3", "extra_arguments": ["--log-level=CRITICAL"]}
        notebook = Path("notebooks", f"{name}.ipynb")
        try:  # of each progress bar the last state stays (coalesce_streams)
            execute_notebook(notebook, partial, parameters, coalesce_streams=True, **options)
        except PapermillExecutionError as error:
            frames = () if error.ename in NO_TRACEBACK else error.traceback
            reason = "\n".join(frames) or f"{error.ename}: {error.evalue}"
            problem = f"failed in cell In [{error.exec_count}]\n{reason}"
        except DeadKernelError:
            problem = "the kernel died (killed, or out of memory)"
        except RuntimeError as error:  # it did not start, or not in time
            problem = str(error)

        # What is left of it has no password and hides its parameters: the settings are shown below.
        executed = nbformat.reads(without_passwords(partial.read_text("utf-8")), as_version=4)
        for cell in executed.cells:
            if {"parameters", "injected-parameters"} & set(cell.metadata.get("tags", ())):
                cell.metadata["jupyter"] = {"source_hidden": True}
        nbformat.write(executed, partial)
        if problem:
            problem = f"[{name}] {without_passwords(problem)}"
            sys.exit(f"{problem}\n[{name}] the notebook as far as it came: {partial}")
        os.utime(partial, (start, start))  # so that what was edited during the run makes it run again
        os.replace(partial, finished)
    minutes, seconds = divmod(round(time.time() - start), 60)
    print(f"[{name}] done in {minutes} min {seconds:02d} s: {finished}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one notebook at a preset.")
    parser.add_argument("name", help="the notebook, for instance 01_data")
    parser.add_argument("--preset", required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--changes", default="{}", help="of the preset, as YAML: 'study: {variants: all}'")
    arguments = parser.parse_args()
    try:
        execute(**vars(arguments))
    except (ValueError, OSError) as error:
        sys.exit(f"[{arguments.name}] {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
