"""Coding agents as their users start them, without a terminal: where they come from, and how each is pointed at a
gateway."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import npm

# Client → package, version. Their programs come in packages of their own, one a platform.
PACKAGES = {
    "claude": ("@anthropic-ai/claude-code", "2.1.332"),
    "codex": ("@openai/codex", "0.171.0"),
    "opencode": ("opencode-ai", "1.18.33"),
}
RUN_S = 90  # of a machine with a core for each process that wants one
MOST_PATIENCE = 8
NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Gateway:
    """A user's knowledge of a gateway: its address (without /v1) and a key."""

    address: str
    key: str


def install(folder: Path) -> dict[str, Path]:
    """The programs by client; fetched from the package registry once, kept in `folder`. Skips where it cannot be."""
    modules = npm.install(folder, dict(PACKAGES.values()))
    return {name: _find(modules, name) for name in PACKAGES}


def _find(modules: Path, name: str) -> Path:
    ending = npm.PLATFORM
    found = [
        path
        for pattern in (
            f"@*/*-{ending}/**/{name}",
            f"opencode-{ending}-baseline/**/{name}",
            f"opencode-{ending}/**/{name}",
        )
        for path in sorted(modules.glob(pattern))
        if path.is_file() and os.access(path, os.X_OK)
    ]
    if not found:
        pytest.skip(f"{name} has no program for {ending}")
    return found[0]


@dataclass(frozen=True)
class Client:
    """`configure` writes what the user would keep in their home folder and returns the environment that they set;
    `begin` and `go_on` are the command lines, behind the program's name, for a prompt and a model: in a new session,
    and in the last one."""

    configure: Callable[[Path, Gateway, str], dict[str, str]]
    begin: Callable[[str, str], list[str]]
    go_on: Callable[[str, str], list[str]]

    def run(
        self,
        program: Path,
        work: Path,
        gateway: Gateway,
        model: str,
        prompt: str,
        going_on: bool,
        run_s: float = RUN_S,
    ) -> "Run":
        """One prompt in the folder `work`; its sibling `home` is the user's. Only loopback addresses can be reached."""
        home = work.parent / "home"
        home.mkdir(exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(home),
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            **self.configure(home, gateway, model),
        }
        command = [str(program), *(self.go_on if going_on else self.begin)(prompt, model)]
        started = time.monotonic()
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        with subprocess.Popen(command, cwd=work, env=environment, stdin=nothing, stdout=pipe, stderr=pipe) as process:
            while True:
                try:
                    out, err = process.communicate(timeout=run_s)
                except subprocess.TimeoutExpired:
                    waited_s = time.monotonic() - started
                    if waited_s < run_s * _patience():
                        continue
                    process.kill()
                    out, err = process.communicate()
                    return Run(-1, _text(out), _text(err) + f"\nstill running after {waited_s:.0f} s")
                return Run(process.returncode, _text(out), _text(err))


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str


def _patience() -> float:
    """Return how many times longer a run takes than on an idle machine: the processes that want a core, for each
    core."""
    return min(MOST_PATIENCE, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")


def _configure_claude(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": gateway.address,
        "ANTHROPIC_AUTH_TOKEN": gateway.key,
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _configure_plain_claude(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
    """Set its base address and token, and no model."""
    return {
        "ANTHROPIC_BASE_URL": gateway.address,
        "ANTHROPIC_AUTH_TOKEN": gateway.key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def configure_codex(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f"""\
model = "{model}"
model_provider = "llmgateway"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.llmgateway]
name = "llmgateway"
base_url = "{gateway.address}/v1"
env_key = "LLMGATEWAY_API_KEY"
wire_api = "responses"
"""
    )
    return {"LLMGATEWAY_API_KEY": gateway.key, "CODEX_HOME": str(folder)}


def _configure_codex_with_sockets(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
    environment = configure_codex(home, gateway, model)
    with (home / ".codex" / "config.toml").open("a") as config:
        config.write("supports_websockets = true\n")
    return environment


def _configure_opencode(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "llmgateway",
        "options": {"baseURL": f"{gateway.address}/v1", "apiKey": "{env:LLMGATEWAY_API_KEY}"},
        "models": {model: {"name": model}},
    }
    name = f"llmgateway/{model}"
    # Titles come from the small model, by default one of the client's own choice.
    content = {"provider": {"llmgateway": provider}, "model": name, "small_model": name, "autoupdate": False}
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(content))
    return {
        "LLMGATEWAY_API_KEY": gateway.key,
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


# Its sandbox needs rights that containers seldom have. Without one it also offers live web search to the model.
ACCEPT_EDITS = ["--permission-mode", "acceptEdits"]
SANDBOXED = ["--skip-git-repo-check", "--sandbox", "workspace-write"]
UNCONFINED = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]

CLIENTS = {
    "claude": Client(
        _configure_claude,
        lambda prompt, model: ["--print", *ACCEPT_EDITS, prompt],
        lambda prompt, model: ["--continue", "--print", *ACCEPT_EDITS, prompt],
    ),
    "claude without a model": Client(
        _configure_plain_claude,
        lambda prompt, model: ["--print", *ACCEPT_EDITS, prompt],
        lambda prompt, model: ["--continue", "--print", *ACCEPT_EDITS, prompt],
    ),
    "codex": Client(
        configure_codex,
        lambda prompt, model: ["exec", *UNCONFINED, prompt],
        lambda prompt, model: ["exec", "resume", "--last", *UNCONFINED, "--model", model, prompt],
    ),
    "codex in its sandbox": Client(
        configure_codex,
        lambda prompt, model: ["exec", *SANDBOXED, prompt],
        lambda prompt, model: ["exec", "resume", "--last", *SANDBOXED, "--model", model, prompt],
    ),
    "codex over a socket": Client(
        _configure_codex_with_sockets,
        lambda prompt, model: ["exec", *UNCONFINED, prompt],
        lambda prompt, model: ["exec", "resume", "--last", *UNCONFINED, "--model", model, prompt],
    ),
    "opencode": Client(
        _configure_opencode,
        lambda prompt, model: ["run", "--auto", "--model", f"llmgateway/{model}", prompt],
        lambda prompt, model: ["run", "--continue", "--auto", "--model", f"llmgateway/{model}", prompt],
    ),
}
