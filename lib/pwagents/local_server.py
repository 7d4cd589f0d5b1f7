"""ASGI applications behind a port of this machine alone: the local web, and the shop for other harnesses."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

PATIENCE_S = 5  # at the end, for answers under way; then their clients are left alone


def listen(port: int) -> socket.socket:
    """Open a socket on the loopback interface, a free one for port 0; a taken one is an OSError."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=1024)
    except (OSError, OverflowError) as error:
        raise OSError(f"Port {port} cannot be used ({error}): choose another one with --port") from None


def serve(app: Callable, listener: socket.socket) -> None:
    """Serve ``app`` until the process is interrupted."""
    _server(app).run(sockets=[listener])


@contextmanager
def serving(app: Callable, port: int = 0) -> Iterator[int]:
    """Serve ``app`` in a thread as long as the block runs, and yield the port: see :func:`listen`."""
    listener, server = listen(port), _server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]  # connections made before it runs wait in the listener's queue
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _server(app: Callable) -> uvicorn.Server:
    options = {"log_level": "warning", "access_log": False, "timeout_graceful_shutdown": PATIENCE_S}
    return uvicorn.Server(uvicorn.Config(app, **options))
