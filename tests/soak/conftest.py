from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import SECRETS, write_mint


@pytest.fixture
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(params=["sqlite", "postgresql"])
def start(request: pytest.FixtureRequest, tmp_path: Path, mint: FakeUpstream) -> Iterator[Start]:
    """A factory of gateways that sell `coin`, all on one store: start(workers=4)."""
    environment = write_mint(tmp_path / "catalogue", mint.url)
    if request.param != "sqlite":
        environment |= SECRETS | {"DATABASE_URL": request.getfixturevalue("postgresql_url")}
    started: list[GatewayProcess] = []

    def make(workers: int = 2, **more: str) -> GatewayProcess:
        key = {"GATEWAY_BOOTSTRAP_API_KEY": started[0].key} if started else {}
        folder = tmp_path / f"node{len(started)}"
        started.append(GatewayProcess(folder, workers, **(environment | key | more)))
        return started[-1].start()

    yield make
    for one in started:
        one.discard()
