"""The container file, executed without a builder: its steps run in an empty environment, and the result is started as
the user that runs the tests. `make container`.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.container import Image, Stage, read_stages
from support.gateways import GatewayProcess

pytestmark = pytest.mark.soak
HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
Contents = dict[Path, tuple[int, int]]


@pytest.fixture(scope="module")
def final() -> Stage:
    return read_stages()[-1]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    folder = Path(tempfile.mkdtemp(prefix="container-"))
    folder.chmod(0o755)
    new_image = Image(folder, read_stages()[0])
    new_image.build()
    yield new_image
    shutil.rmtree(folder)


def contents(image: Image) -> Contents:
    """Every file of the image with its size and when it was written."""
    found = [path for path in image.place("/opt").rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.fixture(scope="module")
def built(image: Image) -> Contents:
    return contents(image)


@pytest.fixture(scope="module")
def gateway(image: Image, final: Stage, built: Contents) -> Iterator[GatewayProcess]:
    """The command of the image with its environment."""
    data = image.place(final.environment["GATEWAY_DATA_DIR"])
    running = GatewayProcess(data)
    running.root = data
    data.mkdir(mode=0o700)
    environment = {name: image.translate(value) for name, value in final.environment.items()}
    environment["PATH"] = environment["PATH"].replace("$PATH", os.environ["PATH"])
    running.environment = environment | {"PORT": str(running.port), "HOST": "127.0.0.1", "HOME": "/nonexistent"}
    running.command = [shutil.which(final.command[0], path=environment["PATH"]) or "", *final.command[1:-1]]
    running.start()
    yield running
    running.stop()


def run(gateway: GatewayProcess, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in the container that runs."""
    environment = gateway.environment
    return subprocess.run(command, cwd=gateway.data, env=environment, capture_output=True, text=True, timeout=60)


def test_the_image_serves_and_writes_to_its_data_alone(image: Image, gateway: GatewayProcess, built: Contents) -> None:
    key = next(part for part in gateway.log().replace('"', " ").split() if part.startswith("llmgtwy_"))
    status, body = gateway.post("/v1/chat/completions", HELLO, key)
    assert status == 200 and "Hello" in body["choices"][0]["message"]["content"]
    assert (gateway.data / "gateway.db").is_file()
    assert contents(image) == built, "its root may be read-only"


def test_its_health_check_shows_whether_it_serves(gateway: GatewayProcess, final: Stage) -> None:
    assert run(gateway, *final.health_command).returncode == 0
    elsewhere = gateway.environment | {"PORT": "9"}
    done = subprocess.run(final.health_command, env=elsewhere, capture_output=True, timeout=60)
    assert done.returncode != 0


def test_the_operators_command_inside_finds_what_runs(gateway: GatewayProcess) -> None:
    done = run(gateway, "llmgateway-manage", "status")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The books agree" in run(gateway, "llmgateway-manage", "doctor").stdout


def test_traces_can_be_sent_and_no_tool_of_the_build_is_left(image: Image, gateway: GatewayProcess) -> None:
    found = run(gateway, "python", "-m", "pip", "list", "--format", "freeze").stdout
    assert "opentelemetry-exporter-otlp-proto-http==" in found
    assert "llmgateway==" in found and "hatchling" not in found and "pytest" not in found
