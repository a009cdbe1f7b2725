"""Packages of npm that tests run, pinned and kept below data/, with a node of their own."""

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

# Newer than many machines have; the registry has it as a package of each platform.
NODE = "22.23.3"
INSTALL_S = 600
MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PLATFORM = f"{platform.system().lower()}-{MACHINE}"  # as packages with programs of one are named


def install(folder: Path, packages: dict[str, str]) -> Path:
    """The `node_modules` of these packages (name → version), fetched once into `folder`. Skips where they cannot be
    had."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    wanted = sorted(f"{package}@{version}" for package, version in packages.items())
    stamp, modules = folder / "installed.json", folder / "node_modules"
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return modules
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    # Install scripts run nothing of others here; those of the agents only link programs that lie there anyway.
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", *wanted]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S)
    if done.returncode != 0:
        pytest.skip(f"the package registry gives no {wanted[0]}: {done.stderr[-300:]}")
    stamp.write_text(json.dumps(wanted))
    return modules


def node(folder: Path) -> Path:
    """The program that runs them."""
    package = f"node-{PLATFORM}"
    return install(folder / "node", {package: NODE}) / package / "bin" / "node"
