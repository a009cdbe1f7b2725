"""Things that a user of Codex has beside the gateway: facts on models of other vendors, and a server of tools.

Codex knows OpenAI's models only. With `model_catalog_json` a user gives it those of other vendors, which then get the
tools of the model that they are a copy of: a free-text `apply_patch` and a search over deferred tools, or `exec` alone
(code mode), in which the others are functions of a program.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from agents.clients import UNCONFINED, Client, Gateway, configure_codex

PLAIN, PROGRAMMING = "gpt-5.5", "gpt-6-sol"  # models of Codex' own list, with each of the two sets of tools
NOTES = Path(__file__).with_name("notes_server.py")
# A conversation of this size is compacted before the next prompt.
COMPACTED_FROM = 900


def catalogue(program: Path, home: Path, copies: dict[str, str]) -> Path:
    """Write Codex' list of models and copies of them, by name and the copied model; return the file."""
    environment = {"HOME": str(home), "CODEX_HOME": str(home), "PATH": "/usr/bin:/bin"}
    known = json.loads(subprocess.run([program, "debug", "models"], env=environment, capture_output=True).stdout)
    by_name = {model["slug"]: model for model in known["models"]}
    added = [{**by_name[copied], "slug": name, "display_name": name} for name, copied in copies.items()]
    path = home / "models.json"
    path.write_text(json.dumps({"models": [*known["models"], *added]}))
    return path


def client(models: Path, *, compacting: bool = False, name: str = "llmgateway") -> Client:
    """Return Codex with a list of models and the server of notes. As `name` "OpenAI" it leaves compaction to the
    server."""

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        environment = configure_codex(home, gateway, model)
        path = home / ".codex" / "config.toml"
        first = [f'model_catalog_json = "{models}"']
        if compacting:
            first.append(f"model_auto_compact_token_limit = {COMPACTED_FROM}")
        servers = f'[mcp_servers.notes]\ncommand = "{sys.executable}"\nargs = ["{NOTES}"]\n'
        written = path.read_text().replace('name = "llmgateway"', f'name = "{name}"')
        path.write_text("\n".join([*first, written, servers]))
        return environment

    return Client(
        configure,
        lambda prompt, model: ["exec", *UNCONFINED, prompt],
        lambda prompt, model: ["exec", "resume", "--last", *UNCONFINED, "--model", model, prompt],
    )


def copies_of(places: Iterable[str]) -> dict[str, str]:
    """Return the model of Codex' list that each model of another vendor is a copy of: each set of tools in turn."""
    return {name: (PLAIN, PROGRAMMING)[number % 2] for number, name in enumerate(places)}
