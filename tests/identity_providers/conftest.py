import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import npm
from support.gateways import ROOT, LocalGateway, local_gateway

from gateway.configuration.settings import Settings

HERE = "identity_providers"
CACHE = ROOT / "data" / HERE
PACKAGES = {"oidc-provider": "9.13.3"}
PROVIDER = Path(__file__).parent / "provider.mjs"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names it: it fetches and runs packages."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True


class PublishedProvider:
    """The OpenID provider of npm in a process."""

    def __init__(self) -> None:
        modules = npm.install(CACHE, PACKAGES)
        program = modules.parent / PROVIDER.name
        program.write_text(PROVIDER.read_text())
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([npm.node(CACHE), program], stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self.address = f"http://127.0.0.1:{self._read()}"

    def serve(self, callback: str, logout: str, home: str) -> None:
        """Accept the gateway with these addresses as a client."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"callback": callback, "logout": logout, "home": home}) + "\n")
        assert self._read() == "ready"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture
def published_provider() -> Iterator[PublishedProvider]:
    provider = PublishedProvider()
    yield provider
    provider.close()


@pytest.fixture
def gateway(settings: Callable[..., Settings]) -> Iterator[LocalGateway]:
    with local_gateway(settings, GATEWAY_ALLOW_PRIVATE_UPSTREAMS="true") as running:
        yield running
