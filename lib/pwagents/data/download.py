"""Download the files that PersonalWAB publishes (Cai et al., WWW 2025) and verify each of them.

    python -m pwagents.data.download [--data-dir data/personalwab] [--base-url URL]

A file is fetched as ``<name>.part``. A download that breaks off goes on from there; the file gets its name
once its git blob id is the published one. A second run downloads nothing.
"""

import argparse
import errno
import fcntl
import hashlib
import os
import shutil
import sys
from pathlib import Path

import requests
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from pwagents.errors import DataError, InfrastructureError
from pwagents.progress import progress
from pwagents.project import project_path

DATA_DIR = "data/personalwab"
REPOSITORY = "https://github.com/HongruCai/PersonalWAB"
COMMIT = "23ff65c"
BASE_URL = f"{REPOSITORY}/raw/{COMMIT}"

_DATA = "PersonalWAB/envs/pwab/data"
_RECOMMENDER = "PersonalWAB/envs/pwab/functions/recommender"
# Path in the repository -> git blob id. The commit itself lists these ids (``git ls-tree``), so they say what
# was published without our trusting a first download.
_BLOB_IDS = {
    f"{_DATA}/all_products_part_1.json": "c305fe1464c350b93a00504e4bbf0cd696ced4b9",
    f"{_DATA}/all_products_part_2.json": "d603173cb1981a42b726246bbe9ab1826efe841c",
    f"{_DATA}/user_history_part_1.json": "9d145cc919fe8f80142b4755c97a46138ee7764c",
    f"{_DATA}/user_history_part_2.json": "535087ecacaad0d5f6e4b8c9265f25599c5e7dfb",
    f"{_DATA}/user_history_part_3.json": "5e763a4a6db3eed2d4497c1ea6680dfa3c327950",
    f"{_DATA}/user_instructions.json": "8053848b6df63fbb865caaeb3828f5d1c825376a",
    f"{_DATA}/user_profiles.json": "adee4183db62ddd8adb095d59b74056ed353f2c8",
    f"{_RECOMMENDER}/checkpoint/pwab.pth": "ae521978d03b8c072b55bbf95002143d6a0e0f62",
    f"{_RECOMMENDER}/data/1000_ids.json": "45910ffd9200ee0c44e1b88f67b5791ce9a1ce62",
}
# name in the data folder -> (path in the repository, git blob id)
PERSONALWAB_FILES = {Path(path).name: (path, blob_id) for path, blob_id in _BLOB_IDS.items()}

LICENSE = """\
The data are PersonalWAB's, by Cai et al. (WWW 2025), under the licence CC BY-NC 4.0
(https://creativecommons.org/licenses/by-nc/4.0/): you may use, share and change them if you name the
authors, link the licence and say what you changed, and for non-commercial purposes only.
They contain Amazon reviews: the words of real people. They are no part of this project.
"""
CHUNK = 1 << 16  # bytes


def git_blob_id(path: str | Path) -> str:
    """The id (40 hex digits) that git gives a file: SHA-1 over "blob <size>", a zero byte and the content."""
    digest = hashlib.sha1(b"blob %d\0" % os.path.getsize(path), usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def verify(data_dir: str | Path) -> dict[str, str]:
    """File name -> "ok", "missing" or "differs" (from the published one, by its git blob id)."""

    def state(path: Path, blob_id: str) -> str:
        if not path.is_file():
            return "missing"
        return "ok" if git_blob_id(path) == blob_id else "differs"

    return {name: state(Path(data_dir, name), blob_id) for name, (_, blob_id) in PERSONALWAB_FILES.items()}


def download(
    data_dir: str | Path, base_url: str = BASE_URL, *, tries: int = 4, wait: float = 1.0, timeout: float = 20
) -> None:
    """Fetch the published files that are not in ``data_dir``, or not as published, and verify each.

    Args:
        data_dir: made where there is none. All files lie flat in it.
        base_url: where the repository's files are, its commit included; redirects are followed.
        tries: requests for a file in one round, where the connection fails or the server is busy. Another
            round follows as long as the last one brought bytes.
        wait: seconds before the second try of a round; they double with each further one, up to a minute.
        timeout: seconds without a byte after which a connection counts as broken off.

    Raises:
        InfrastructureError: no connection, a refusal of the server, a full disk, or another download into
            the folder. What was fetched is kept.
        DataError: the server twice gave something else than the published file.
        OSError: the folder or a file in it cannot be read or written.
    """
    data_dir = Path(data_dir)
    print(LICENSE, flush=True)
    states = verify(data_dir)
    for name, state in states.items():
        note = {"ok": "already there", "missing": "to fetch", "differs": "not as published: to fetch again"}
        print(f"{name}: {note[state]}")
    wanted = [name for name, state in states.items() if state != "ok"]
    if not wanted:
        return
    print(f"Fetching from {base_url} into {data_dir}", flush=True)
    data_dir.mkdir(parents=True, exist_ok=True)
    with open(data_dir / ".lock", "w") as lock:  # two downloads would write into one .part file
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfrastructureError(f"another process is downloading into {data_dir}") from None
        for i, name in enumerate(wanted):
            try:
                _fetch_published(name, data_dir, base_url, tries, wait, timeout)
            except requests.RequestException as error:
                reason = f"{name} could not be fetched: {_reason(error)}"
                raise InfrastructureError(f"{reason}\n{_way_out(data_dir, wanted[i:])}") from None


def _fetch_published(name: str, data_dir: Path, base_url: str, tries: int, wait: float, timeout: float):
    """Fetch one file and give it its name if it is the published one; if not, once more from scratch."""
    path, expected = PERSONALWAB_FILES[name]
    url = f"{base_url.rstrip('/')}/{path}"
    part = data_dir / f"{name}.part"
    for _ in range(2):  # a part of an earlier run may be wrong; what is fetched from scratch should be right
        _fetch(url, part, tries, wait, timeout)
        found = git_blob_id(part)
        if found == expected:
            os.replace(part, data_dir / name)
            print(f"{name}: fetched and verified", flush=True)
            return
        part.unlink()
        print(f"{name}: what came has the git blob id {found}, not {expected}", flush=True)
    advice = f"{expected} from {url} (a proxy or a login page may have answered in its place)"
    raise DataError(data_dir / name, "-", "git blob id", found, advice)


def _fetch(url: str, part: Path, tries: int, wait: float, timeout: float) -> None:
    """Make requests until ``part`` is whole, or a round of them has brought nothing.

    On a bad line every request may break off and yet bring some bytes: that is no reason to give up.
    """

    def tell(state: RetryCallState) -> None:
        reason = _reason(state.outcome.exception())
        print(f"{part.stem}: {reason}; trying again in {state.next_action.sleep:.0f} s", flush=True)

    retry = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_attempt(tries),
        wait=wait_exponential(multiplier=wait, max=60),
        before_sleep=tell,
        reraise=True,
    )
    while True:
        reached = _size(part)
        try:
            return retry(_request_rest, url, part, timeout)
        except requests.RequestException as error:
            if not _may_pass(error) or _size(part) <= reached:
                raise


def _request_rest(url: str, part: Path, timeout: float) -> None:
    """Ask once for what ``part`` lacks and append it; a server that sends all makes it start over."""
    start = _size(part)
    headers = {"Accept-Encoding": "identity"}  # so that lengths and ranges count the file's own bytes
    if start:
        headers["Range"] = f"bytes={start}-"
    with requests.get(url, headers=headers, stream=True, timeout=timeout) as response:
        if start and response.status_code == requests.codes.range_not_satisfiable:
            return  # nothing lies beyond: the part is whole, or wrong and will not pass verification
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        bar = progress(desc=part.stem, total=total, initial=start, unit="B", unit_scale=True)
        try:
            with bar, open(part, "ab" if start else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise InfrastructureError(_disk_full(part, total)) from None
            raise


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, requests.HTTPError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, broken)


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError):
        return f"the server answered {error.response.status_code} to {error.response.url}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        cause = error.args[0] if error.args else error
        return f"no connection, or no answer in time ({getattr(cause, 'reason', cause)})"
    return str(error)


def _disk_full(part: Path, total: int | None) -> str:
    needed = f"{total - _size(part):,}" if total is not None else "an unknown number of"
    free = f"{shutil.disk_usage(part.parent).free:,} are free in {part.parent}"
    advice = "What was fetched is kept: make room and run the same command again."
    return f"the disk is full: {part.stem} still needs {needed} bytes, {free}. {advice}"


def _way_out(data_dir: Path, names: list[str]) -> str:
    paths = "\n".join(f"  {PERSONALWAB_FILES[name][0]}" for name in names)
    return (
        f"Missing in {data_dir}: {', '.join(names)}\n"
        "What was fetched is kept: run the same command again to go on. Or get the files elsewhere with\n"
        f"  git clone {REPOSITORY} && git -C PersonalWAB checkout {COMMIT}\n"
        "and put these of the clone side by side into that folder, or into another that you set as data_dir\n"
        f"(the same command verifies them):\n{paths}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Download PersonalWAB's published files and verify them.")
    parser.add_argument("--data-dir", default=DATA_DIR, help="default: %(default)s below the project's root")
    parser.add_argument("--base-url", default=BASE_URL, help="default: %(default)s")
    arguments = parser.parse_args()
    try:
        download(project_path(Path(arguments.data_dir).expanduser()), arguments.base_url)
    except (DataError, InfrastructureError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. What was fetched is kept: run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
