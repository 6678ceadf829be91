"""An HTTP server that answers with JSON, for addresses that are not Spark, YARN or Kubernetes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[Mapping[str, Any] | None, Mapping[str, str]], tuple[int, Any]]
"""From the body and the headers of a request to a status and JSON."""


@contextmanager
def answering(answers: Mapping[str, Answer | Any]) -> Iterator[str]:
    """The address of a server. answers: JSON, or functions that return it, by path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def answer(self, body: Mapping[str, Any] | None) -> None:
            path = self.path.partition("?")[0]
            found = answers.get(path)
            status, value = (404, {}) if found is None else (200, found)
            if callable(found):
                status, value = found(body, dict(self.headers))
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
