"""Builds the wheel of this checkout and installs it without its dependencies, which the tests have."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Build a wheel of this checkout, or of another folder, in `folder`."""
    _build("wheel", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_source(folder: Path) -> Path:
    """Write the published source files of this checkout to `folder`."""
    _build("sdist", folder, ROOT)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def _build(kind: str, folder: Path, source: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def install_wheel(wheel: Path, folder: Path) -> Path:
    """Install the wheel in a new environment in `folder` and return its folder of programs; other packages are those of
    the tests."""
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    programs = folder / "bin"
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-config", "--no-cache"]
    install = [*uv, "--python", str(programs / "python"), "--no-deps", "--no-index", "--offline", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    _bring_compiled(packages / "gateway")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def _bring_compiled(package: Path) -> None:
    """Copy the compiled files of the same sources from this checkout, because compiling takes seconds."""
    for module in package.rglob("*.py"):
        ours = ROOT / "gateway" / module.relative_to(package)
        compiled = Path(cache_from_source(str(ours)))
        if compiled.exists() and ours.exists() and ours.read_bytes() == module.read_bytes():
            os.utime(module, ns=(ours.stat().st_atime_ns, ours.stat().st_mtime_ns))
            theirs = Path(cache_from_source(str(module)))
            theirs.parent.mkdir(exist_ok=True)
            shutil.copy(compiled, theirs)
