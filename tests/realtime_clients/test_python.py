"""OpenAI's agents for Python, in an environment of their own (they want older packages than the tests have)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from realtime_clients.scene import Scene

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "data" / "realtime-clients" / "python"
PACKAGE = "openai-agents==0.24.0"
INSTALL_S, RUN_S = 600, 60


def interpreter() -> Path:
    """That of the environment, made once. Skips where the package cannot be had."""
    python, stamp = CACHE / "bin" / "python", CACHE / "installed.txt"
    if not stamp.exists() or stamp.read_text() != PACKAGE:
        subprocess.run([sys.executable, "-m", "venv", CACHE], check=True, timeout=INSTALL_S)
        command = [str(python), "-m", "pip", "install", "-q", PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
        if done.returncode != 0:
            pytest.skip(f"the package index gives no {PACKAGE}: {done.stderr[-300:]}")
        stamp.write_text(PACKAGE)
    return python


def test_an_agent_talks_by_text_and_sound(scene: Scene) -> None:
    before = len(scene.provider.sessions)
    command = [str(interpreter()), str(HERE / "drive_agents.py"), scene.gateway.address, scene.gateway.key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == [] and {"response.done", "input_audio_buffer.committed"} <= set(found["kinds"])
    (session,) = scene.provider.sessions[before:]
    assert session.query == {"model": ["gpt-realtime-2.1"]} and session.problems == []
