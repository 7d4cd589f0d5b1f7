"""Serving on a port of this machine ends with its block, whatever its clients do."""

import asyncio
import socket
import time

import pytest

from pwagents import local_server


@pytest.mark.timeout(60)
def test_a_client_that_waits_for_ever_does_not_keep_the_server(monkeypatch):
    asked = []

    async def never(scope, receive, send):
        if scope["type"] == "http":
            asked.append(scope["path"])
            await asyncio.Event().wait()

    monkeypatch.setattr(local_server, "PATIENCE_S", 1)
    with socket.socket() as client:  # it outlives the server
        with local_server.serving(never) as port:
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n")
            while not asked:
                time.sleep(0.01)
            begin = time.monotonic()
        assert time.monotonic() - begin < 10
