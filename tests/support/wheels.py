"""The wheel of this checkout: built, and installed without what it depends on, which the tests have."""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """A wheel of this checkout, or of another folder, in `folder`."""
    _build("wheel", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_source(folder: Path) -> Path:
    """What is published of the source of this checkout, in `folder`."""
    _build("sdist", folder, ROOT)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def _build(kind: str, folder: Path, source: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def install_wheel(wheel: Path, folder: Path) -> Path:
    """The folder of the programs of a new environment in `folder` that holds the wheel; other packages are ours."""
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(make, check=True, capture_output=True, timeout=60)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-deps"]
    done = subprocess.run([*pip, "--no-index", str(wheel)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs
