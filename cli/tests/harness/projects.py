"""Projects that the client makes in tests."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.client_runs import Client

PYTHON_TEMPLATES = ("image-generation", "chat-web-app", "agent-with-tools", "rag-embeddings", "batch-script")


def make_project(client: Client, folder: Path, template: str) -> Path:
    """Make a project without its dependencies."""
    client.run("init", str(folder), "-t", template, "--no-install")
    return folder


def set_key(folder: Path, key: str) -> None:
    """Put an API key into the project's settings."""
    path = folder / ".env.local"
    path.write_text(path.read_text().replace("LLMGATEWAY_API_KEY=\n", f"LLMGATEWAY_API_KEY={key}\n"))


def run_python(folder: Path, *arguments: str, python: str = sys.executable) -> str:
    """Run Python in a project, and return what it printed."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "llmgateway.json").read_text())
    return manifest
