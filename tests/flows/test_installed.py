"""The wheel, installed: its command serves in an empty folder, and finds the data of what runs."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateways import GatewayProcess
from support.wheels import build_wheel, install_wheel

pytestmark = pytest.mark.slow
HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The operator's command of an installed wheel."""
    folder = tmp_path_factory.mktemp("installed")
    return str(install_wheel(build_wheel(folder), folder / "environment") / "llmgateway-manage")


@pytest.fixture(scope="module")
def gateway(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """`llmgateway-manage serve` in an empty folder, with no setting except its port."""
    folder = tmp_path_factory.mktemp("empty")
    running = GatewayProcess(folder / "data")
    running.root = folder
    running.command = [program]
    running.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PORT": str(running.port)}
    running.start()
    yield running
    running.stop()


def run_program(gateway: GatewayProcess, program: str, *arguments: str) -> tuple[str, str]:
    """Return stdout and stderr of a command that runs in another folder without the path of the data."""
    environment = {"PATH": os.environ["PATH"], "HOME": gateway.environment["HOME"]}
    command = [program, *arguments]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_a_fresh_installation_answers_with_the_key_that_it_shows(gateway: GatewayProcess) -> None:
    key = next(part for part in gateway.log().split() if part.startswith("llmgtwy_"))
    status, body = gateway.post("/v1/chat/completions", HELLO, key)
    assert status == 200 and "Hello" in body["choices"][0]["message"]["content"]
    assert (gateway.data / "gateway.db").is_file()


def test_the_command_finds_the_data_of_what_runs(gateway: GatewayProcess, program: str) -> None:
    output, beside = run_program(gateway, program, "doctor")
    assert "The books agree" in output and str(gateway.data / "gateway.db") in beside
    assert len(json.loads(run_program(gateway, program, "status", "--json")[0])["workers"]) >= 1


def test_served_files_are_in_the_installation(gateway: GatewayProcess) -> None:
    assert gateway.get("/openapi.json")[0] == 200
    status, page = gateway.get("/console/login")
    assert status == 200 and b"<form" in page


def test_settings_of_clients_are_in_the_installation(program: str) -> None:
    listing = "from gateway.surfaces.console.client_settings import load_clients; print(len(load_clients()))"
    command = [str(Path(program).with_name("python")), "-P", "-c", listing]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and int(done.stdout) > 10, done.stderr
