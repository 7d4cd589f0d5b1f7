"""Downloading PersonalWAB's files, from a real server that drops, refuses, stalls and lies on request."""

import fcntl
import functools
import gzip
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pwagents.data import download as module
from pwagents.data.download import CHUNK, PERSONALWAB_FILES, download, git_blob_id, verify
from pwagents.errors import DataError, InfrastructureError

BIG = random.Random(0).randbytes(400_000)
SMALL = b'{"0": "B000000001"}'


@dataclass(frozen=True)
class Reply:
    """How the server treats one request: well, unless something is said."""

    status: int = 0
    content: bytes | None = None  # in the file's place
    stop_after: int | None = None  # send so many bytes of the body, then drop the connection
    stall: bool = False  # where it would drop: say nothing more, but stay
    ignore_range: bool = False
    pause: float = 0.0  # seconds before each piece of 64 KiB
    redirect: str = ""


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``replies`` are for the next requests, one each; ``asked`` holds (path, Range)."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/raw/commit"
        self.files: dict[str, bytes] = {}
        self.replies: list[Reply] = []
        self.asked: list[tuple[str, str | None]] = []
        self.sent = 0  # bytes of bodies
        self.closing = threading.Event()

    def handle_error(self, *_):
        """Clients that hang up are what is tested here."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        path, asked_range = self.path.removeprefix("/raw/commit/"), self.headers.get("Range")
        server.asked.append((path, asked_range))
        reply = server.replies.pop(0) if server.replies else Reply()
        if reply.redirect:
            self.send_response(302)
            self.send_header("Location", reply.redirect + self.path)
            return self.end_headers()
        if reply.status:
            return self.send_error(reply.status)
        content = server.files[path] if reply.content is None else reply.content
        start = 0 if reply.ignore_range or not asked_range else int(re.findall(r"\d+", asked_range)[0])
        if start and start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        body = content[start:]
        if "gzip" in self.headers.get("Accept-Encoding", ""):  # as servers do
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.send_body(body, reply)

    def send_body(self, body: bytes, reply: Reply):
        body = body[: reply.stop_after]
        for i in range(0, len(body), CHUNK):
            time.sleep(reply.pause)
            self.server.sent += len(body[i : i + CHUNK])
            self.wfile.write(body[i : i + CHUNK])
        if reply.stall:
            self.server.closing.wait(30)


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def published(server, tmp_path, monkeypatch):
    """Two files take the place of PersonalWAB's: a big one and a small one."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server.files = {"data/big.json": BIG, "model/small.pth": SMALL}
    files = {}
    for path, content in server.files.items():
        (tmp_path / "content").write_bytes(content)
        files[Path(path).name] = (path, git_blob_id(tmp_path / "content"))
    monkeypatch.setattr(module, "PERSONALWAB_FILES", files)
    return files


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "below" / "data"


@pytest.fixture
def fetch(server, published, folder):
    """`download` from the server without waits."""
    return functools.partial(download, folder, server.url, wait=0, timeout=5)


def put(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def is_complete(folder):
    contents = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}
    return contents == {"big.json": BIG, "small.pth": SMALL}


def requests_for(server, name):
    """The Range header of each request for a file."""
    return [asked_range for path, asked_range in server.asked if path.endswith(f"/{name}")]


def run_main(monkeypatch, *arguments):
    """The command itself, in this process and without waits: its exit code."""
    monkeypatch.setattr(sys, "argv", ["download", *map(str, arguments)])
    monkeypatch.setattr(module, "download", functools.partial(download, wait=0))
    return module.main()


# --- ids and states ---------------------------------------------------------------------------------


def test_the_id_is_the_one_that_git_gives(tmp_path):
    # `git hash-object` of an empty file and of "hello\n"
    for content, expected in (
        (b"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
        (b"hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"),
    ):
        put(tmp_path, "file", content)
        assert git_blob_id(tmp_path / "file") == expected


@pytest.mark.parametrize("name", ["user_profiles.json", "1000_ids.json"])
def test_real_files_have_the_published_ids(project_root, name):
    shared = os.environ.get("PWAGENTS_DATA", project_root.parent / "shared" / "data")
    data_dir = Path(shared) / "personalwab"
    if not (data_dir / name).exists():
        pytest.skip(f"{data_dir / name} is not on this machine")
    assert git_blob_id(data_dir / name) == PERSONALWAB_FILES[name][1]
    assert verify(data_dir)[name] == "ok"


def test_nine_files_are_published():
    assert len(PERSONALWAB_FILES) == 9
    assert {Path(path).name for path, _ in PERSONALWAB_FILES.values()} == set(PERSONALWAB_FILES)
    assert all(re.fullmatch("[0-9a-f]{40}", blob_id) for _, blob_id in PERSONALWAB_FILES.values())


def test_files_are_ok_or_missing_or_differ(published, folder):
    assert verify(folder) == {"big.json": "missing", "small.pth": "missing"}
    put(folder, "big.json", BIG[:-1])
    put(folder, "small.pth", SMALL)
    assert verify(folder) == {"big.json": "differs", "small.pth": "ok"}


# --- what goes well ---------------------------------------------------------------------------------


def test_all_files_land_in_one_folder_and_a_second_run_downloads_nothing(server, folder, fetch, capsys):
    fetch()
    assert is_complete(folder)
    shown = capsys.readouterr().out
    assert shown.index("CC BY-NC 4.0") < shown.index(f"from {server.url} into {folder}")
    assert "Cai et al." in shown and "Amazon reviews" in shown and "non-commercial" in shown
    assert "big.json: fetched and verified" in shown

    server.asked.clear()
    fetch()
    assert server.asked == []
    assert "big.json: already there" in capsys.readouterr().out


def test_a_folder_that_has_all_files_is_only_read(server, folder, fetch):
    put(folder, "big.json", BIG)
    put(folder, "small.pth", SMALL)
    fetch()
    assert sorted(path.name for path in folder.iterdir()) == ["big.json", "small.pth"]


def test_only_what_is_missing_or_differs_is_fetched(server, folder, fetch):
    put(folder, "big.json", BIG)
    put(folder, "small.pth", b"edited")
    fetch()
    assert is_complete(folder)
    assert requests_for(server, "big.json") == []


def test_a_bar_counts_the_bytes_of_a_file_from_where_it_goes_on(server, folder, fetch, monkeypatch):
    bars = []

    def spy(*arguments, **options):
        bars.append(bar := make_bar(*arguments, **options))
        return bar

    make_bar = module.progress
    monkeypatch.setattr(module, "progress", spy)
    put(folder, "big.json.part", BIG[:1000])
    fetch()
    assert [(bar.desc, bar.initial, bar.n, bar.total) for bar in bars] == [
        ("big.json", 1000, len(BIG), len(BIG)),
        ("small.pth", 0, len(SMALL), len(SMALL)),
    ]


def test_redirects_are_followed_by_resumed_requests_too(server, folder, fetch):
    put(folder, "big.json.part", BIG[:1000])
    server.replies = [Reply(redirect=f"http://localhost:{server.server_port}")]
    fetch()
    assert is_complete(folder)
    assert requests_for(server, "big.json") == ["bytes=1000-"] * 2


# --- what breaks off goes on ------------------------------------------------------------------------


def test_a_dropped_download_goes_on_where_it_stopped(server, folder, fetch, capsys):
    server.replies = [Reply(stop_after=250_000)]
    fetch()
    assert is_complete(folder)
    first, second = requests_for(server, "big.json")
    assert first is None
    start = int(re.fullmatch(r"bytes=(\d+)-", second).group(1))
    assert 250_000 - CHUNK < start <= 250_000  # of the piece that was cut nothing is kept
    assert server.sent == 250_000 + len(BIG) - start + len(SMALL)
    assert "big.json: the connection broke off; trying again" in capsys.readouterr().out


def test_tries_go_on_as_long_as_they_bring_something(server, folder, fetch):
    server.replies = [Reply(stop_after=CHUNK)] * 5
    fetch(tries=2)
    assert is_complete(folder)
    assert requests_for(server, "big.json") == [None, *(f"bytes={i * CHUNK}-" for i in range(1, 6))]


def test_a_server_that_ignores_the_range_makes_it_start_over(server, folder, fetch):
    server.replies = [Reply(stop_after=250_000), Reply(ignore_range=True)]
    fetch()
    assert is_complete(folder)


def test_a_server_that_ignores_the_range_and_always_drops_is_given_up(server, folder, fetch):
    server.replies = [Reply(stop_after=250_000, ignore_range=True)] * 20
    with pytest.raises(InfrastructureError, match=r"big\.json could not be fetched: the connection broke"):
        fetch()
    assert 4 <= len(server.asked) <= 8
    assert (folder / "big.json.part").stat().st_size > 0


def test_a_silent_server_is_asked_again_after_the_time_out(server, folder, fetch):
    server.replies = [Reply(stop_after=2 * CHUNK, stall=True)]
    fetch(timeout=2)
    assert is_complete(folder)
    assert requests_for(server, "big.json") == [None, f"bytes={2 * CHUNK}-"]


def test_a_slow_server_is_waited_for(server, folder, fetch):
    server.replies = [Reply(pause=0.3)]
    fetch(timeout=2)  # the whole takes longer
    assert is_complete(folder)
    assert requests_for(server, "big.json") == [None]


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_process_keeps_what_it_fetched(server, published, folder, fetch, stop):
    server.replies = [Reply(stop_after=3 * CHUNK, stall=True)]
    program = (
        "import sys; from pwagents.data import download as module; "
        f"module.PERSONALWAB_FILES = {published!r}; sys.exit(module.main())"
    )
    command = [sys.executable, "-c", program, "--data-dir", str(folder), "--base-url", server.url]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    part = folder / "big.json.part"
    deadline = time.time() + 60
    while not (part.exists() and part.stat().st_size == 3 * CHUNK):
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(stop)
    _, error = process.communicate(timeout=30)
    if stop == signal.SIGINT:
        assert process.returncode == 130
        assert error.startswith("Stopped. What was fetched is kept") and "Traceback" not in error

    assert verify(folder) == {"big.json": "missing", "small.pth": "missing"}
    server.sent = 0
    fetch()
    assert is_complete(folder)
    assert requests_for(server, "big.json") == [None, f"bytes={3 * CHUNK}-"]
    assert server.sent == len(BIG) - 3 * CHUNK + len(SMALL)


def test_a_part_that_was_whole_needs_no_byte_more(server, folder, fetch):
    put(folder, "big.json.part", BIG)
    fetch()
    assert is_complete(folder)
    assert server.sent == len(SMALL)


# --- what the server says ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server, folder, fetch, status):
    server.replies = [Reply(status=status)] * 2
    fetch()
    assert is_complete(folder)
    assert len(requests_for(server, "big.json")) == 3


def test_a_server_that_stays_busy_is_given_up_after_so_many_tries(server, folder, fetch):
    server.replies = [Reply(status=503)] * 20
    with pytest.raises(InfrastructureError, match=r"big\.json could not be fetched: the server answered 503"):
        fetch(tries=3)
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_is_never_asked_again(server, folder, fetch, status):
    server.replies = [Reply(), Reply(status=status)]
    with pytest.raises(InfrastructureError) as caught:
        fetch()
    assert f"the server answered {status} to {server.url}/model/small.pth" in str(caught.value)
    assert f"Missing in {folder}: small.pth\n" in str(caught.value)
    assert len(requests_for(server, "small.pth")) == 1
    assert (folder / "big.json").read_bytes() == BIG


# --- what came is not what was published ------------------------------------------------------------

PAGE = b"<!DOCTYPE html><title>Sign in</title>"


@pytest.mark.parametrize("content", [PAGE, b"", BIG[:-1], BIG[:-1] + b"?", BIG + b"?"])
def test_wrong_content_is_fetched_once_more_and_then_one_clear_error(
    server, published, folder, fetch, content, tmp_path
):
    server.replies = [Reply(content=content)] * 2
    with pytest.raises(DataError) as caught:
        fetch()
    put(tmp_path, "wrong", content)
    assert f"{folder / 'big.json'}, record -, field 'git blob id'" in str(caught.value)
    assert f"found {git_blob_id(tmp_path / 'wrong')}" in str(caught.value)
    assert f"expected {published['big.json'][1]}" in str(caught.value)
    assert requests_for(server, "big.json") == [None, None]
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_what_is_right_the_second_time_is_taken(server, folder, fetch):
    server.replies = [Reply(content=PAGE)]
    fetch()
    assert is_complete(folder)


@pytest.mark.parametrize("part", [b"?" * 1000, BIG + b"?"])
def test_a_part_of_something_else_is_thrown_away(server, folder, fetch, part):
    put(folder, "big.json.part", part)
    fetch()
    assert is_complete(folder)
    assert requests_for(server, "big.json") == [f"bytes={len(part)}-", None]


# --- what this machine cannot do --------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error(server, folder, fetch):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full, a disk that is always full")
    folder.mkdir(parents=True)
    (folder / "big.json.part").symlink_to("/dev/full")
    with pytest.raises(InfrastructureError) as caught:
        fetch()
    message = rf"the disk is full: big\.json still needs {len(BIG):,} bytes, [\d,]+ are free in {folder}\. "
    assert re.match(message, str(caught.value))
    assert "What was fetched is kept" in str(caught.value) and "run the same command again" in str(
        caught.value
    )
    assert len(server.asked) == 1


def test_without_a_connection_it_says_what_is_missing_and_how_to_go_on(
    server, published, folder, monkeypatch, capsys
):
    put(folder, "small.pth", SMALL)
    server.server_close()  # nobody listens there now
    assert run_main(monkeypatch, "--data-dir", folder, "--base-url", server.url) == 1
    error = capsys.readouterr().err
    assert error.startswith("big.json could not be fetched: no connection") and "refused" in error
    assert f"Missing in {folder}: big.json\n" in error
    assert "git clone https://github.com/HongruCai/PersonalWAB" in error and "data_dir" in error
    assert "  data/big.json\n" in error and "small.pth" not in error
    assert "Traceback" not in error


def test_a_host_without_an_address_and_a_url_without_sense_are_clear_errors(published, folder):
    with pytest.raises(InfrastructureError, match=r"no connection.*no-such-host\.invalid"):
        download(folder, "http://no-such-host.invalid", tries=2, wait=0)
    with pytest.raises(InfrastructureError, match="No scheme supplied"):
        download(folder, "somewhere/else", wait=0)


def test_waits_between_tries_double(server, published, folder, capsys):
    server.replies = [Reply(status=503)] * 3
    start = time.perf_counter()
    download(folder, server.url, wait=0.05)
    assert time.perf_counter() - start >= 0.05 + 0.1 + 0.2
    assert is_complete(folder)


def test_a_folder_that_cannot_be_is_a_clear_error(published, tmp_path, monkeypatch, capsys):
    put(tmp_path, "a_file", b"")
    assert run_main(monkeypatch, "--data-dir", tmp_path / "a_file") == 1
    assert str(tmp_path / "a_file") in capsys.readouterr().err


def test_two_downloads_do_not_mix(server, folder, fetch):
    folder.mkdir(parents=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(InfrastructureError, match="another process is downloading into"):
            fetch()
    assert server.asked == []
