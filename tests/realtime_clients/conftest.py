"""A gateway before the strict fake of a provider's sessions, also behind TLS, which some clients insist on."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from fakes.realtime import FakeRealtime
from gevent import socket
from gevent.server import StreamServer
from realtime_clients.scene import Scene
from support.certificates import write_certificate
from support.gateways import GatewayProcess

HERE = "realtime_clients"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names it: it fetches and runs packages."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("realtime-clients")
    certificate = write_certificate(folder / "gateway.pem", "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FakeRealtime() as provider:
        environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": provider.url}
        gateway = GatewayProcess(folder / "data", **environment, GATEWAY_BOOTSTRAP_CREDITS_USD="100")

        def pass_on(near: socket.socket, address: object) -> None:
            far = socket.create_connection(("127.0.0.1", gateway.port))
            for one in [gevent.spawn(copy, near, far), gevent.spawn(copy, far, near)]:
                one.join()

        front = StreamServer(("127.0.0.1", 0), pass_on, ssl_context=context)
        front.start()
        try:
            gateway.start()
            yield Scene(gateway, provider, f"https://localhost:{front.server_port}", Path(certificate))
        finally:
            gateway.discard()
            front.stop()


def copy(near: socket.socket, far: socket.socket) -> None:
    """All that comes, to its end."""
    try:
        while data := near.recv(65_536):
            far.sendall(data)
        far._sock.shutdown(socket.SHUT_WR)
    except OSError:
        return
