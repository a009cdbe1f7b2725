"""Builds everything that a publisher uploads into dist/: `make release`. deploy/release.toml has the settings."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gateway.build_stamp import read_commit  # noqa: E402

CHART = ROOT / "deploy" / "helm" / "llmgateway"
REQUIREMENTS = ROOT / "requirements-otel.txt"  # what the image installs
# A requirement such as "psycopg[binary]==3.3.9 ; sys_platform == 'linux'" and the hashes on the lines after it.
PINNED = re.compile(
    r"^(?P<name>[^\s=\[]+)(?:\[[^\]]+\])?==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?:\s*\\\n\s+--hash=\S+)+)",
    re.M,
)
COPIED = re.compile(r"^COPY (?!--from)(.+) \S+$", re.M)
UNSET = 'repository: ""'  # in values.yaml of the chart


def read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def build_packages(folder: Path) -> None:
    """Build the wheel and the source archive of the server and of the command-line client."""
    for source in (ROOT, ROOT / "cli"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
        subprocess.run(command, cwd=source, check=True)


def list_components() -> dict[str, Any]:
    """Return the packages of the image as a CycloneDX 1.6 document, with the hashes that the installation checks."""
    project = read_toml(ROOT / "pyproject.toml")["project"]
    text = REQUIREMENTS.read_text()
    components = [_component(pinned) for pinned in PINNED.finditer(text)]
    own = {
        "type": "application",
        "bom-ref": project["name"],
        "name": project["name"],
        "version": project["version"],
        "purl": f"pkg:pypi/{project['name']}@{project['version']}",
        "licenses": [{"license": {"id": project["license"]}}],
    }
    references = [component["bom-ref"] for component in components]
    identity = uuid.uuid5(uuid.NAMESPACE_URL, own["purl"] + hashlib.sha256(text.encode()).hexdigest())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": identity.urn,
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": references},
            *({"ref": reference} for reference in references),
        ],
    }


def _component(pinned: re.Match[str]) -> dict[str, Any]:
    name = pinned["name"]
    version = pinned["version"]
    purl = f"pkg:pypi/{name.lower().replace('_', '-').replace('.', '-')}@{version}"
    hashes = [
        {"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:([0-9a-f]{64})", pinned["hashes"])
    ]
    component = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [
            {"type": "distribution", "url": f"https://pypi.org/project/{name}/{version}/#files", "hashes": hashes}
        ],
    }
    if pinned["marker"]:
        component["properties"] = [{"name": "python:environment_marker", "value": pinned["marker"].strip()}]
    return component


def context_files() -> list[Path]:
    """Return the files that deploy/Dockerfile copies, and itself."""
    container_file = ROOT / "deploy" / "Dockerfile"
    copied = " ".join(COPIED.findall(container_file.read_text())).split()
    return [container_file, *_files_below(ROOT / name for name in copied)]


def _files_below(places: Iterable[Path]) -> Iterable[Path]:
    for place in places:
        if place.is_file():
            yield place
        yield from (path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def pack_chart(target: Path, repository: str) -> None:
    """Pack the chart as `helm package` does, with the publisher's image."""
    files = {f"llmgateway/{path.relative_to(CHART)}": path.read_bytes() for path in _files_below([CHART])}
    values = files["llmgateway/values.yaml"].decode()
    assert values.count(UNSET) == 1, "values.yaml has no empty image.repository"
    files["llmgateway/values.yaml"] = values.replace(UNSET, f'repository: "{repository}"').encode()
    write_archive(target, files)


def write_archive(target: Path, files: dict[str, bytes]) -> None:
    """Write a compressed tar archive that depends on nothing but names and contents."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed) as archive,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names)]
    (folder / "SHA256SUMS").write_text("".join(lines))


def release(folder: Path, registry: str, image: str) -> None:
    """Build all artefacts in a folder that has none of an earlier run."""
    version = read_toml(ROOT / "pyproject.toml")["project"]["version"]
    repository = f"{registry.rstrip('/')}/{image}" if registry else ""
    build_packages(folder)
    (folder / f"llmgateway-{version}.cdx.json").write_text(json.dumps(list_components(), indent=2) + "\n")
    context = {str(path.relative_to(ROOT)): path.read_bytes() for path in context_files()}
    commit = read_commit(ROOT)
    if commit:
        context["gateway/build.txt"] = f"{commit}\n".encode()
    write_archive(folder / f"llmgateway-{version}-container.tar.gz", context)
    pack_chart(folder / f"llmgateway-{version}.tgz", repository)
    write_checksums(folder, [path.name for path in folder.iterdir()])
    for path in sorted(folder.iterdir()):
        print(path)
    if repository:
        print(f"The image of this release is {repository}:{version}. docs/deployment.md shows how to push it.")
    else:
        print("deploy/release.toml names no registry: the packed chart needs image.repository at its installation.")


def main() -> None:
    folder = ROOT / "dist" / "release"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    release(folder, **read_toml(ROOT / "deploy" / "release.toml"))


if __name__ == "__main__":
    main()
