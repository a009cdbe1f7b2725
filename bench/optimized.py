"""The gateway on a second interpreter, built with profile-guided optimization like the one of the published container.

Interpreters of distributions have this optimization; those that pyenv builds usually lack it. BENCH_PYTHON names the
interpreter, by default the distribution's, and PYTHON_JIT=1 enables its compiler, if it has one. Its packages are
installed below data/bench.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.peers import FOLDER, run
from bench.processes import BenchError
from bench.targets import ROOT, Starter, Target, start_gateway

NAME = "gateway-optimized"
DEFAULT = "/usr/bin/python3"
OLDEST = (3, 11)
REQUIREMENTS = ROOT / "requirements.txt"
DESCRIBE = """
import json, sys
has_jit = hasattr(sys, "_jit") and sys._jit.is_enabled()
print(json.dumps([sys.base_prefix, list(sys.version_info[:3]), has_jit]))
"""


def find_interpreter() -> tuple[str, str]:
    """Return the path and the version of the second interpreter. BenchError when there is none."""
    path = os.environ.get("BENCH_PYTHON", DEFAULT)
    try:
        done = subprocess.run([path, "-c", DESCRIBE], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise BenchError(f"{path} cannot be run") from None
    prefix, version, has_jit = json.loads(done.stdout)
    if Path(prefix).resolve() == Path(sys.base_prefix).resolve():
        raise BenchError(f"{path} is the interpreter that runs the benchmark")
    name = ".".join(map(str, version))
    if tuple(version) < OLDEST:
        raise BenchError(f"{path} is Python {name}, which is too old")
    if has_jit:
        name += " with its JIT compiler"
    return path, name


def install() -> Path:
    """Install the gateway's packages for the second interpreter, once; return its path in the new environment.
    BenchError."""
    path, version = find_interpreter()
    folder = FOLDER / NAME
    stamp = folder / "pins.json"
    pins = [path, version, hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()]
    python = folder / "bin" / "python"
    if stamp.exists() and json.loads(stamp.read_text()) == pins:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    run([path, "-m", "venv", str(folder)], folder.parent)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(REQUIREMENTS)], folder)
    stamp.write_text(json.dumps(pins))
    return python


def leave_out(names: Iterable[str]) -> dict[str, str]:
    """Install the second interpreter's packages if its target is among `names`; return why it is left out."""
    if NAME not in names:
        return {}
    try:
        install()
    except BenchError as error:
        return {NAME: str(error)}
    return {}


@contextlib.contextmanager
def start(port: int, mock: int, folder: Path) -> Iterator[Target]:
    """Start the gateway as `start_gateway` does, on the second interpreter."""
    with start_gateway(port, mock, folder, python=str(install()), name=NAME) as target:
        yield target


STARTERS: dict[str, Starter] = {NAME: start}
