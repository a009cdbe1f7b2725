"""`completion`: shells complete commands, options and names of agents."""

import shutil
import subprocess

import pytest
from harness.client_runs import Client
from harness.fake_agents import write_custom_agents

CUSTOM = {"id": "clara", "label": "Clara", "command": "clara"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_data_and_its_use_a_notice(shell: str, signed_out: Client) -> None:
    finished = signed_out.run("completion", shell)
    assert "_LLMGATEWAY_COMPLETE" in finished.stdout and shell in finished.stdout
    assert f"llmgateway completion {shell}" in finished.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_the_script(shell: str, signed_out: Client) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = signed_out.run("completion", shell).stdout
    done = subprocess.run([program, "-n"], input=script, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def completed(client: Client, *words: str) -> set[str]:
    """Return the words that a shell would offer for the last of `words`."""
    line = " ".join(["llmgateway", *words])
    environment = {"_LLMGATEWAY_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    lines = client.run(**environment).stdout.splitlines()
    return {line.split(",", 1)[1] for line in lines if "," in line}


def test_commands_are_completed(signed_out: Client) -> None:
    assert {"chat", "completion", "configure", "credits"} >= completed(signed_out, "c") > {"chat"}
    assert "claude" not in completed(signed_out, "cl")  # a hidden command


def test_options_are_completed(signed_out: Client) -> None:
    assert {"--capability", "--provider", "--search", "--available", "--json"} <= completed(signed_out, "models", "--")


def test_agents_are_completed(signed_out: Client) -> None:
    write_custom_agents(signed_out.folder, CUSTOM)
    assert completed(signed_out, "launch", "cl") == {"claude", "clara"}


def test_shells_are_completed_and_others_are_wrong_usage(signed_out: Client) -> None:
    assert completed(signed_out, "completion", "") == {"bash", "zsh", "fish"}
    assert "is not one of" in signed_out.refused("completion", "tcsh", code=2)
