"""Pinned npm packages for tests, with a separate node; both are stored below data/."""

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

# Newer than the node of many machines; npm has a package for each platform.
NODE = "22.23.3"
INSTALL_S = 600
MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PLATFORM = f"{platform.system().lower()}-{MACHINE}"  # as in names of packages with binaries


def install(folder: Path, packages: dict[str, str]) -> Path:
    """Install packages (name → version) once into `folder` and return the `node_modules`. Skips where they are not
    available."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    expected = sorted(f"{package}@{version}" for package, version in packages.items())
    stamp, modules = folder / "installed.json", folder / "node_modules"
    if stamp.exists() and json.loads(stamp.read_text()) == expected:
        return modules
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    # Install scripts are not run; those of the agents only link programs that are already there.
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", *expected]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S)
    if done.returncode != 0:
        pytest.skip(f"the package registry does not provide {expected[0]}: {done.stderr[-300:]}")
    stamp.write_text(json.dumps(expected))
    return modules


def machine_node(oldest: int) -> Path:
    """Return the path of this machine's node, with npm beside it. Skips without one of this major version, and
    where npm reaches no package registry."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        pytest.skip(f"needs Node.js {oldest} or later with npm; there is none on this machine")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0] or 0) < oldest:
        pytest.skip(f"needs Node.js {oldest} or later; this machine has {version}")
    reached = subprocess.run(["npm", "view", "npm", "version"], capture_output=True, text=True, timeout=INSTALL_S)
    if reached.returncode != 0:
        pytest.skip(f"npm reaches no package registry: {reached.stderr[-300:]}")
    return Path(found)


def node(folder: Path) -> Path:
    """Return the path of the node program."""
    package = f"node-{PLATFORM}"
    return install(folder / "node", {package: NODE}) / package / "bin" / "node"
