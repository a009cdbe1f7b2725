"""A user of the command-line client, who has the agents installed and starts them with it."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from agents.clients import NOWHERE, RUN_S
from agents.upstreams import Job
from support.gateways import ROOT, GatewayProcess

# Agents that are scripts for node.
SCRIPTS = {
    "qwen": ("@qwen-code/qwen-code", "0.24.4"),
    "kimi": ("@moonshot-ai/kimi-code", "2.1.0"),
    "gemini": ("@google/gemini-cli", "0.61.0"),
}


class User:
    """A user with an empty home folder, the client and the agents; only loopback addresses can be reached."""

    def __init__(self, job: Job, gateway: GatewayProcess, programs: Iterable[Path]) -> None:
        self.work = Path(job.folder)
        self.home = self.work.parent / "home"
        self.home.mkdir()
        folders = [str(program.parent) for program in programs]
        self.environment = {
            "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "PYTHONPATH": str(ROOT / "cli"),
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            "LLMGATEWAY_API_URL": gateway.address,
            "LLMGATEWAY_API_KEY": gateway.key,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }

    def client(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the client."""
        return self.run(sys.executable, "-m", "llmgateway_cli", *arguments)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
