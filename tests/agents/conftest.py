from collections.abc import Iterator
from pathlib import Path

import pytest
from agents.clients import install
from agents.upstreams import PLACES, Job, Model, Place
from gateways import GatewayProcess

HERE = "agents"
CACHE = Path(__file__).resolve().parent.parent.parent / "data" / "agents"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Programs of several hundred megabytes are fetched and run only when this folder is asked for by name."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    return install(CACHE)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "work"
    folder.mkdir()
    return Job(str(folder), "greeting.txt", "Hello from the other side of the gateway.")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """A model behind each wire format."""
    return PLACES[request.param]


@pytest.fixture
def upstream(place: Place, job: Job) -> Iterator[Model]:
    with place.kind(job) as running:
        yield running


@pytest.fixture
def gateway(tmp_path: Path, place: Place, upstream: Model) -> Iterator[GatewayProcess]:
    """A gateway under gunicorn, as a user runs it, whose provider is the stand-in."""
    stem = "LLM_" + place.provider.upper().replace("-", "_")
    environment = {f"{stem}_BASE_URL": upstream.url, f"{stem}_API_KEY": "sk-upstream"}
    process = GatewayProcess(tmp_path / "data", **environment)
    yield process.start()
    process.stop()
