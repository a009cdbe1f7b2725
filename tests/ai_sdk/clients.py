"""The AI SDK's majors as their users install them: where they come from, and one of them at work."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from support import npm

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / "data" / "ai-sdk"
# Major → packages. The vendors' packages bring their own tools, which are called through the gateway.
MAJORS = {
    5: {
        "ai": "5.0.277",
        "@ai-sdk/gateway": "2.0.168",
        "@ai-sdk/openai": "2.0.131",
        "@ai-sdk/anthropic": "2.0.112",
        "@ai-sdk/google": "2.0.108",
    },
    6: {
        "ai": "6.0.326",
        "@ai-sdk/gateway": "3.0.232",
        "@ai-sdk/openai": "3.0.141",
        "@ai-sdk/anthropic": "3.0.139",
        "@ai-sdk/google": "3.0.141",
    },
    7: {
        "ai": "7.0.173",
        "@ai-sdk/gateway": "4.0.146",
        "@ai-sdk/openai": "4.0.118",
        "@ai-sdk/anthropic": "4.0.105",
        "@ai-sdk/google": "4.0.121",
        "@ai-sdk/openai-compatible": "3.0.92",
    },
}
SHARED = {"zod": "4.6.7"}
COMPILER = {"typescript": "5.9.3"}
PREFIXES = {5: "/v1/ai", 6: "/v3/ai", 7: "/v4/ai"}
ANSWER_S = 60
Json = dict[str, Any]


def install(folder: Path) -> Path:
    """Fetched from the package registry once, kept in `folder`, a folder for each major in it; the node to run them
    with. Skips where they cannot be had."""
    for major, packages in MAJORS.items():
        npm.install(folder / f"major-{major}", {**packages, **SHARED})
    npm.install(folder / "compiler", COMPILER)
    return npm.node(folder)


@dataclass
class Sdk:
    """One major version in a separate process. `ask` runs one operation of the SDK and returns its result."""

    major: int
    process: Any
    address: str
    key: str

    @classmethod
    def start(cls, node: Path, folder: Path, major: int, address: str, key: str) -> "Sdk":
        command = [str(node), str(HERE / "drive.mjs"), str(folder / f"major-{major}")]
        bare = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return cls(major, subprocess.Popen(command, env=bare, **pipes), address, key)

    def run(self, op: str, model: str = "", *, prefix: str = "", key: str = "", **options: Any) -> Json:
        base = self.address + (prefix or PREFIXES[self.major])
        command = {"op": op, "baseURL": base, "apiKey": key or self.key, "model": model, **options}
        with gevent.Timeout(ANSWER_S):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        assert line, "the SDK's process ended"
        answer: Json = json.loads(line)
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
