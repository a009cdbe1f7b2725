"""A server between an agent and a gateway that keeps each request of the agent."""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HOP_HEADERS = ("connection", "transfer-encoding", "content-length", "host", "accept-encoding")


class Recorder:
    """Passes requests on to the gateway at `address`, and keeps (path, headers, body) of those with a JSON body."""

    def __init__(self, address: str) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        place = urlsplit(address)
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size)
                headers = {name.lower(): value for name, value in self.headers.items()}
                if body.startswith(b"{"):
                    recorder.requests.append((self.path.partition("?")[0], headers, json.loads(body)))
                upstream = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
                sent = {name: value for name, value in headers.items() if name not in HOP_HEADERS}
                upstream.request(self.command, self.path, body, sent)
                reply = upstream.getresponse()
                content = reply.read()
                self.send_response(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in HOP_HEADERS:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                upstream.close()

            do_GET = do_POST = do_HEAD = _pass

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Recorder":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
