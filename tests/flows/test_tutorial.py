"""The tutorial and the how-to guides, followed in one shell: each of their commands runs as it is written."""

import re
import subprocess
from pathlib import Path

import pytest
from support import warm
from support.gateways import ROOT, GatewayProcess
from support.pages import blocks

PAGES = ("docs/tutorial.md", "docs/how-to.md")
PASSWORD = "a password of the tutorial"
STEPS = [block for page in PAGES for block in blocks() if block.page == page and block.mark == "steps"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The output of each block."""
    folder = tmp_path_factory.mktemp("tutorial")
    gateway = GatewayProcess(folder / "data").start()
    try:
        return follow(gateway, folder)
    finally:
        gateway.stop()


def follow(gateway: GatewayProcess, folder: Path) -> list[str]:
    """Run all blocks in one shell, which ends at the first failure."""
    operator, descriptor = warm.shell_command("gateway.operator.command")
    for name, command in (("manage", operator), ("llmgateway", f'"{ROOT}/llmgateway"')):
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)
    curl = 'curl() { command curl --fail-with-body -sS --max-time 60 "$@"; }\n'
    script = "set -euo pipefail\n" + curl
    for block in STEPS:
        text = block.text.replace("http://127.0.0.1:4001", gateway.address).replace("sk-…", "sk-of-the-tests")
        # A person waits until the sums contain the last requests.
        text = re.sub(
            r"^(?=llmgateway usage|\./manage spend --by team)", "sleep 6\n", text, count=1, flags=re.MULTILINE
        )
        script += f"echo '=== {block}'\n{text}"
    environment = {**gateway.environment, "LLMGATEWAY_PASSWORD": PASSWORD, "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        input=f"{PASSWORD}\n",
        capture_output=True,
        text=True,
        timeout=500,
        pass_fds=[descriptor],
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.split("=== ")[1:]


def find(told: list[str], command: str) -> str:
    """Return what the block with this command printed."""
    (found,) = [text for block, text in zip(STEPS, told, strict=True) if command in block.text]
    return found


def test_every_step_of_the_tutorial_and_the_how_to_guides_runs(told: list[str]) -> None:
    assert len(told) == len(STEPS) >= 20


def test_the_tutorial_shows_what_it_promises(told: list[str]) -> None:
    assert "Hello!" in find(told, "My program")
    assert "sandbox-echo" in find(told, "llmgateway logs -n 5")
    assert "50" in find(told, "--amount 50") and "80" in find(told, "--amount 50")
    assert "/console/invitation?token=" in find(told, "members invite")
    assert "Hello from Ben" in find(told, "Hello from Ben")
    spent = find(told, "manage spend --by team\n")
    assert "Research" in spent and "ben@example.org" in spent


def test_failover_of_the_how_to_guide_reaches_the_second_model(told: list[str]) -> None:
    assert "sandbox-echo" in find(told, "sandbox-fail-503")
