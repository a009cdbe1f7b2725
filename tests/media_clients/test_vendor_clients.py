"""Clients of Groq, Cohere, Cerebras, Perplexity and Mistral for Python in an environment of their own: run by `make
media` alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateways import GatewayProcess

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "data" / "media-clients" / "python"
PACKAGES = [
    *("groq==0.37.1", "langchain-groq==1.1.3", "cohere==5.21.1", "cerebras_cloud_sdk==1.91.0"),
    *("perplexityai==0.46.1", "mistralai==3.7.0"),
]
INSTALL_S, RUN_S = 600, 120


def interpreter() -> Path:
    """That of the environment, made once. Skips where the packages cannot be had."""
    python, stamp = CACHE / "bin" / "python", CACHE / "installed.txt"
    if not stamp.exists() or stamp.read_text() != str(PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", CACHE], check=True, timeout=INSTALL_S)
        command = [str(python), "-m", "pip", "install", "-q", *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
        if done.returncode != 0:
            pytest.skip(f"the package index gives no {PACKAGES}: {done.stderr[-300:]}")
        stamp.write_text(str(PACKAGES))
    return python


@pytest.mark.parametrize("base", ["", "/v1"])
def test_the_clients_need_only_the_address(tmp_path: Path, base: str) -> None:
    gateway = GatewayProcess(tmp_path / "data")
    try:
        gateway.start()
        command = [str(interpreter()), str(HERE / "drive_vendor_clients.py"), gateway.address + base, gateway.key]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    finally:
        gateway.discard()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "complete": "Hello",
        "streamed": "Hello",
        "usage": 4,
        "langchain": "Hello",
        "chat": "Hello",
        "chat_stream": "Hello",
        "chat_tools": "Hello",
        "chat_events": ["message-start", "tool-call-start", "tool-call-delta", "tool-call-end", "message-end"],
        "chat_v1": "Hello",
        "chat_stream_v1": "Hello",
        "default": ["auto"],
        "embed": 2,
        "embed_v1": 2,
        "rerank": [1],
        "rerank_v1": [1],
        "cerebras": "Hello",
        "perplexity": "Hello",
        "cost": True,
        "mistral": ["BaseModelCard", "base"],
    }
