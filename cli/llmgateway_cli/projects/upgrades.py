"""Changes of a template since a project was made from it."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from llmgateway_cli import __version__
from llmgateway_cli.file_replacement import replace_file
from llmgateway_cli.projects.manifest import READABLE, Manifest, digest_of

OURS = re.compile(r"@llmgateway/|llmgateway\b")
PIN = re.compile(r"^(llmgateway[\w.-]*)\s*(?:==|>=|~=)\s*([\w.]+)", re.MULTILINE)


@dataclass(slots=True)
class Upgrade:
    """The changes of an upgrade, as paths. `kept` are files that both the user and the template have changed."""

    manifest: Manifest
    client: str
    newest: str = __version__
    replaced: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    def apply(self) -> None:
        """Write the files and the manifest. Raises CliError."""
        for path in (*self.replaced, *self.added):
            replace_file(self.manifest.folder / path, self.texts[path], READABLE)
            self.manifest.digests[path] = digest_of(self.texts[path])
        self.manifest.save()


def find_upgrade(manifest: Manifest) -> Upgrade:
    """Compare a project with its template. A file that the user removed stays removed. Raises CliError."""
    upgrade = Upgrade(manifest, manifest.client, texts=manifest.definition.read_files(manifest.values))
    for path, text in upgrade.texts.items():
        if path not in manifest.digests:
            (upgrade.kept if (manifest.folder / path).exists() else upgrade.added).append(path)
        elif digest_of(text) != manifest.digests[path]:
            (upgrade.kept if manifest.is_changed(path) else upgrade.replaced).append(path)
    return upgrade


def product_packages(folder: Path) -> list[tuple[str, str]]:
    """Return name and version of each package of the gateway that the folder's package.json and requirements.txt
    name."""
    return [*_npm_packages(folder / "package.json"), *_pip_packages(folder / "requirements.txt")]


def _npm_packages(path: Path) -> list[tuple[str, str]]:
    try:
        members = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    if not isinstance(members, dict):
        return []
    packages_found: list[tuple[str, str]] = []
    for group in ("dependencies", "devDependencies"):
        packages = members.get(group)
        if isinstance(packages, dict):
            packages_found += [(name, str(version)) for name, version in packages.items() if OURS.match(name)]
    return packages_found


def _pip_packages(path: Path) -> list[tuple[str, str]]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return PIN.findall(text)
