"""An HTTP server on a free port of the loopback interface, for as long as a `with` block."""

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self


class Server:
    """Answer with `handler`, each connection in a separate thread."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Quiet(("127.0.0.1", 0), handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore cut connections. These tests cause them."""


def cut(handler: BaseHTTPRequestHandler) -> None:
    """End the connection without an answer, or without the rest of one."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
