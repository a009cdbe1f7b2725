"""The requirement files: complete with every extra, as pip demands of files with hashes, and what each target needs."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.name for path in ROOT.glob("requirements*.txt"))
PIN = re.compile(r"^(?P<requirement>[^\s#-][^\\\n]*?)\s*\\\n(?P<hashes>(?:\s+--hash=\S+(?:\s*\\)?\n?)+)", re.M)
# Without their dependencies on purpose: the Makefile installs this file with --no-deps.
ALONE = {"requirements-clickhouse.txt"}


class Pin(NamedTuple):
    """One line of a requirement file: the version and the extras of a package."""

    version: str
    extras: frozenset[str]


def read_pins(text: str) -> dict[str, Pin]:
    """Return the packages that a file installs on this machine. Every line must be pinned and have hashes."""
    pins = {}
    matched = list(PIN.finditer(text))
    written = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(matched) == len(written), "a requirement without hashes"
    for one in matched:
        requirement = Requirement(one["requirement"])
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        if requirement.marker is None or requirement.marker.evaluate():
            name = canonicalize_name(requirement.name)
            pins[name] = Pin(specifier.version, frozenset(map(canonicalize_name, requirement.extras)))
    return pins


def missing_from(pins: dict[str, Pin]) -> list[str]:
    """Return what the pinned packages need and the file does not install, as pip judges with --require-hashes."""
    missing = []
    for name, pin in pins.items():
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for text in needed:
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *pin.extras)]
            if requirement.marker is not None and not any(map(requirement.marker.evaluate, environments)):
                continue
            found = pins.get(canonicalize_name(requirement.name))
            if found is None or not found.extras >= set(map(canonicalize_name, requirement.extras)):
                missing.append(f"{name} needs {requirement.name}{sorted(requirement.extras)}")
            elif not requirement.specifier.contains(found.version, prereleases=True):
                missing.append(f"{name} needs {requirement}, not {found.version}")
    return missing


def roots_of(project: Path, extras: tuple[str, ...] = ()) -> list[Requirement]:
    members = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    texts = list(members["dependencies"])
    for extra in extras:
        texts += members["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("name", [name for name in FILES if name not in ALONE])
def test_pip_can_install_each_requirement_file_with_hashes(name: str) -> None:
    pins = read_pins((ROOT / name).read_text())
    assert pins
    assert missing_from(pins) == []


def test_a_lost_extra_is_found() -> None:
    pins = read_pins((ROOT / "requirements-dev.txt").read_text())
    pins["google-auth"] = Pin(pins["google-auth"].version, frozenset())
    assert missing_from(pins) == ["google-genai needs google-auth['requests']"]


@pytest.mark.parametrize(
    ("name", "project", "extras"),
    [
        ("requirements.txt", ROOT, ()),
        ("requirements-otel.txt", ROOT, ("otel",)),
        ("requirements-dev.txt", ROOT, ("test", "catalogue", "otel")),
        ("requirements-dev.txt", ROOT / "cli", ()),
        ("requirements-cli.txt", ROOT / "cli", ()),
    ],
)
def test_each_requirement_file_has_what_its_project_declares(name: str, project: Path, extras: tuple[str, ...]) -> None:
    pins = read_pins((ROOT / name).read_text())
    for requirement in roots_of(project, extras):
        if requirement.marker is None or requirement.marker.evaluate():
            pin = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin.version), requirement
            assert pin.extras >= set(map(canonicalize_name, requirement.extras)), requirement


def test_one_version_of_each_package_in_all_files() -> None:
    versions: dict[str, set[str]] = {}
    for name in FILES:
        for package, pin in read_pins((ROOT / name).read_text()).items():
            versions.setdefault(package, set()).add(pin.version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}
