import http.client
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent.pywsgi import WSGIServer
from mcp_clients.packages import CACHE
from support import npm
from support.gateways import ROOT, GatewayProcess
from support.signed_in_owner import PASSWORD

HERE = "mcp_clients"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names it: it fetches and runs packages."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True


@pytest.fixture(scope="session")
def node() -> Path:
    return npm.node(CACHE)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Two workers, as a user runs them, with the tools of the conformance suite beside the product's own."""
    environment = {
        "GATEWAY_SERVER_EXTENSIONS": "conformance_tools",
        "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
        "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD,
    }
    running = GatewayProcess(tmp_path_factory.mktemp("mcp") / "data", 2, **environment)
    running.cold = True  # it imports what lies in its own PYTHONPATH
    yield running.start()
    running.stop()


class KeyedDoor:
    """A proxy that adds the key, for clients that have nowhere to put one; Host and Origin pass as they came."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._server = WSGIServer(("127.0.0.1", 0), self._pass, log=None)
        self._server.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def _pass(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        named = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        named |= {"Authorization": f"Bearer {self._gateway.key}"}
        named |= {"Content-Type": environ["CONTENT_TYPE"]} if environ.get("CONTENT_TYPE") else {}
        named |= {"Content-Length": str(length)} if length else {}
        connection = http.client.HTTPConnection("127.0.0.1", self._gateway.port, timeout=30)
        query = environ.get("QUERY_STRING")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        connection.putrequest(environ["REQUEST_METHOD"], path, skip_host=True, skip_accept_encoding=True)
        for name, value in named.items():
            if name != "CONNECTION":
                connection.putheader(name, value)
        connection.endheaders(environ["wsgi.input"].read(length) if length else None)
        answer = connection.getresponse()
        hop = ("transfer-encoding", "connection")
        start(f"{answer.status} {answer.reason}", [one for one in answer.getheaders() if one[0].lower() not in hop])
        return iter(lambda: answer.read1(65_536), b"")

    def close(self) -> None:
        self._server.stop(timeout=1)


@pytest.fixture(scope="session")
def door(gateway: GatewayProcess) -> Iterator[KeyedDoor]:
    opened = KeyedDoor(gateway)
    yield opened
    opened.close()
