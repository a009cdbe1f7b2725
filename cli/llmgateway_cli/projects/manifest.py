"""The manifest of a project that `init` made: `llmgateway.json` in its folder."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmgateway_cli import __version__
from llmgateway_cli.errors import CliError
from llmgateway_cli.file_replacement import replace_file
from llmgateway_cli.projects.templates import TEMPLATES, Template

FILE = "llmgateway.json"
READABLE = 0o644


@dataclass(slots=True)
class Manifest:
    """The facts about a project: `digests` has the SHA-256 of each file as the client wrote it, to find the files that
    the user has changed since, and `values` the values of the template's placeholders."""

    folder: Path
    name: str
    template: str
    client: str
    values: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def definition(self) -> Template:
        """The project's template. Raises CliError if this client does not have it."""
        template = TEMPLATES.get(self.template)
        if template is None:
            raise CliError(
                f"{self.folder / FILE} names the template {self.template!r}, which this client does not have.",
                "Upgrade the client: `pip install --upgrade llmgateway-cli`.",
            )
        return template

    def is_changed(self, path: str) -> bool:
        """Return whether the user has changed or removed a file since the client wrote it."""
        place = self.folder / path
        return not place.is_file() or digest_of(place.read_text("utf-8", "replace")) != self.digests.get(path)

    def save(self) -> None:
        """Write the manifest. Raises CliError."""
        self.client = __version__
        members = {
            "name": self.name,
            "template": self.template,
            "client": self.client,
            "values": self.values,
            "files": dict(sorted(self.digests.items())),
        }
        replace_file(self.folder / FILE, json.dumps(members, indent=2) + "\n", READABLE)


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None without one. Raises CliError for a damaged one."""
    path = folder / FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path} cannot be read: {error}.") from None
    try:
        members = json.loads(text)
    except json.JSONDecodeError as error:
        raise _damaged(path, f"line {error.lineno} is not JSON") from None
    if not isinstance(members, dict):
        raise _damaged(path, "it must be a JSON object")
    for name in ("name", "template", "client"):
        if not isinstance(members.get(name), str):
            raise _damaged(path, f"{name} must be text")
    return Manifest(
        folder,
        members["name"],
        members["template"],
        members["client"],
        _texts(path, members, "values"),
        _texts(path, members, "files"),
    )


def require_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises CliError outside of a project."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise CliError(
            f"{folder} is not a project of this client: it has no {FILE}.",
            "Go to a project's folder, or make one with `llmgateway init`.",
        )
    return manifest


def digest_of(text: str) -> str:
    """Return the SHA-256 of a file's text in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _texts(path: Path, members: dict[str, Any], name: str) -> dict[str, str]:
    texts = members.get(name, {})
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
        raise _damaged(path, f"{name} must be an object with texts")
    return texts


def _damaged(path: Path, why: str) -> CliError:
    return CliError(f"{path} is damaged: {why}.", "Restore it from your version control, or make the project anew.")
