from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from agents.clients import install
from agents.upstreams import Job, Model, Place, write_catalogue
from support.gateways import GatewayProcess

HERE = "agents"
CACHE = Path(__file__).resolve().parent.parent.parent / "data" / "agents"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names it: it fetches and runs programs of several hundred MB."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True


@pytest.fixture(scope="session")
def cache() -> Path:
    """The folder in which fetched programs stay."""
    return CACHE


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    return install(CACHE)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "work"
    folder.mkdir()
    return Job(str(folder), "greeting.txt", "Hello from the other side of the gateway.")


@pytest.fixture
def serve(tmp_path: Path, job: Job) -> Iterator[Callable[..., tuple[GatewayProcess, list[Model]]]]:
    """Return a factory of gateways under gunicorn, as a user runs them, with the fakes of these places as providers."""
    with ExitStack() as running:

        def start(*places: Place, **more: str) -> tuple[GatewayProcess, list[Model]]:
            models = {
                place.provider: running.enter_context(place.kind(job))
                for place in {place.provider: place for place in places}.values()
            }
            catalogue = str(write_catalogue(tmp_path / "catalogue"))
            environment = {"GATEWAY_LOG_REQUESTS": "json", "GATEWAY_CATALOGUE_PATH": catalogue, **more}
            for place in places:
                environment |= place.environment(models[place.provider].url)
            process = GatewayProcess(tmp_path / "data", **environment)
            running.callback(process.stop)
            return process.start(), [models[place.provider] for place in places]

        yield start
