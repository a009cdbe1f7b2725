"""`serve`: an installed server is started, and without one its installation is explained."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.client_runs import PATIENCE_S, Client
from harness.fake_agents import FakeAgents

from llmgateway_cli.commands.serve import server_command
from llmgateway_cli.errors import CliError

CLIENT = Path(__file__).resolve().parents[1] / "llmgateway_cli"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client that lies neither in a checkout nor beside an installed server."""
    monkeypatch.setattr("llmgateway_cli.commands.serve.CHECKOUT", tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    return tmp_path


def test_without_a_server_its_installation_is_explained(alone: Path) -> None:
    with pytest.raises(CliError, match="No gateway is installed") as caught:
        server_command({"PATH": str(alone)})
    assert "pip install" in caught.value.remedy and "make serve" in caught.value.remedy


def test_an_installed_server_is_started(alone: Path) -> None:
    programs = FakeAgents(alone / "programs")
    programs.install("llmgateway-manage")
    assert server_command({"PATH": programs.path}) == [str(alone / "programs" / "llmgateway-manage"), "serve"]


def test_a_server_beside_the_client_is_found(alone: Path) -> None:
    FakeAgents(alone / "bin").install("llmgateway-manage")
    assert server_command({}) == [str(alone / "bin" / "llmgateway-manage"), "serve"]


def test_the_server_of_the_checkout_comes_first(alone: Path) -> None:
    (alone / "gateway").mkdir()
    own = alone / "manage"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert server_command({"PATH": "/usr/bin"}) == [str(own), "serve"]


def test_the_server_takes_the_place_of_the_client(tmp_path: Path) -> None:
    shutil.copytree(CLIENT, tmp_path / "cli" / "llmgateway_cli")
    (tmp_path / "gateway").mkdir()
    FakeAgents(tmp_path).install("manage", work='echo "port $PORT"; exit 3')
    command = [sys.executable, "-m", "llmgateway_cli", "serve", "--port", "4999"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "cli"), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (3, "port 4999\n")
    assert "http://127.0.0.1:4999" in done.stderr


def test_a_port_must_be_one(signed_out: Client) -> None:
    assert "70000 is not in the range" in signed_out.refused("serve", "-p", "70000", code=2)
