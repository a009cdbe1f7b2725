"""Tools and routes that `add` writes into a project."""

from dataclasses import dataclass
from pathlib import Path

from llmgateway_cli.projects.templates import FOLDER, Template, filled

PIECES = FOLDER / "_pieces"
SUFFIXES = {"python": ".py", "typescript": ".ts"}
SOURCES = {"python": "", "typescript": "src/"}
NAMES: dict[str, tuple[str, ...]] = {"tool": ("weather", "search", "calculator"), "route": ("generate", "chat")}


@dataclass(frozen=True, slots=True)
class Piece:
    """A file to write: its path in the project and its text. `use` says how to use it ("": the project finds it)."""

    path: str
    text: str
    use: str


def read_piece(kind: str, name: str, template: Template, values: dict[str, str]) -> Piece:
    """Return a tool or a route in the language of the project."""
    suffix = SUFFIXES[template.language]
    source = PIECES / f"{kind}s" / f"{name}{suffix}"
    path = f"{SOURCES[template.language]}{kind}s/{name}{suffix}"
    return Piece(path, filled(source.read_text("utf-8"), values), _use_of(kind, name, template, path))


def _use_of(kind: str, name: str, template: Template, path: str) -> str:
    if (kind, template.name) in (("tool", "agent-with-tools"), ("route", "chat-web-app")):
        return ""
    if template.language == "typescript":
        return f'Import it where you need it: import * as {name} from "./{kind}s/{name}.js".'
    return f"Import it where you need it: from {kind}s import {name}. Its first lines describe what it offers."


def missing_package_file(path: str, folder: Path) -> str:
    """Return the path of the `__init__.py` that a Python file needs and the project lacks, else ""."""
    if not path.endswith(".py"):
        return ""
    package = f"{path.partition('/')[0]}/__init__.py"
    return "" if (folder / package).exists() else package
