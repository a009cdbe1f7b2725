"""A person who has a clone and nothing else: the files of the checkout, a home, a shell, a terminal and a browser."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from support.clone_commands import CloneCommands
from support.gateways import free_port
from support.pages import ROOT
from support.plain_browser import PlainBrowser
from support.terminals import Terminal

# The documents' address; the newcomer's gateway has another port, because the usual one may be in use here.
DOCUMENTED = "http://127.0.0.1:4001"
DOCUMENTED_KEY = "llmgtwy_…"
READY = "Booting worker"
PATIENCE_S = 600.0
FAULTS = (
    "Traceback (most recent call last)",
    "A fault of this program",
    "ModuleNotFoundError",
    "Internal Server Error",
)
# How this machine reaches the package index.
INDEX = ("PIP_", "UV_", "SSL_CERT", "REQUESTS_CA", "NODE_EXTRA_CA", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def copy_checkout(folder: Path) -> None:
    """Copy the files that a clone of this working tree would have."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listing.returncode:  # an unpacked archive
        left_out = shutil.ignore_patterns(".*", "__pycache__", "data", "dist", "build")
        shutil.copytree(ROOT, folder, ignore=left_out)
        return
    for name in filter(None, listing.stdout.decode().split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def own_environment(home: Path) -> dict[str, str]:
    """Return the variables of a new account of this machine, with no path to what is installed for the tests."""
    python = Path(os.path.realpath(sys.executable)).parent
    found = [Path(place).parent for place in map(shutil.which, ("node", "git", "curl")) if place]
    places = dict.fromkeys([str(python), *map(str, found), "/usr/local/bin", "/usr/bin", "/bin"])
    known = {name: text for name, text in os.environ.items() if name.upper().startswith(INDEX)}
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pip"
    known.setdefault("PIP_CACHE_DIR", str(cache))
    for settings in (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
        if settings.is_file():
            known.setdefault("PIP_CONFIG_FILE", str(settings))
    return {**known, "HOME": str(home), "PATH": ":".join(places), "TERM": "xterm", "LANG": "C.UTF-8"}


@dataclass
class Newcomer:
    """A clone, after `make serve` was typed in it. `banner` is all that it printed."""

    folder: Path
    home: Path
    environment: dict[str, str]
    serving: Terminal
    banner: str = ""
    address: str = ""
    key: str = ""
    clients: Path = Path()
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, folder: Path, **environment: str) -> Self:
        """Copy the checkout, and type `make serve` in it on a terminal."""
        clone, home = folder / "llmgateway", folder / "home"
        clone.mkdir()
        home.mkdir()
        copy_checkout(clone)
        assert not (clone / ".venv").exists()
        own = own_environment(home)
        port = str(free_port())
        serving = Terminal(["make", "serve"], clone, own | environment | {"PORT": port}, columns=400)
        found = cls(
            clone, home, own | environment | {"PORT": port, "LLMGATEWAY_API_URL": f"http://127.0.0.1:{port}"}, serving
        )
        try:
            found.banner = serving.expect(READY)
        except BaseException:
            serving.__exit__()
            raise
        found.address = _only(r"^Gateway: (\S+)$", found.banner)
        found.key = _only(r"^API key: (llmgtwy_\S+)$", found.banner)
        return found

    def as_printed(self, text: str) -> str:
        """Return a text of the documents with this gateway's address and key instead of their placeholders."""
        return text.replace(DOCUMENTED, self.address).replace(DOCUMENTED_KEY, self.key)

    def shell(
        self, text: str, folder: Path | None = None, typed: str = "", status: int | None = 0, **environment: str
    ) -> str:
        """Run a text in a shell, and return all that it prints. It must exit with `status`, with None in any
        documented way, and never with a fault of a program."""
        own = {"LLMGATEWAY_API_KEY": self.key, **self.environment, **environment}
        done = subprocess.run(
            ["bash", "-c", text], cwd=folder or self.folder, env=own, input=typed, capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        return _check(text, done.stdout + done.stderr, done.returncode, status)

    @contextmanager
    def many(self, program: str) -> Iterator[Callable[..., str]]:
        """Yield a function that does what `shell` does with a line of arguments of `manage` or `llmgateway`, without
        starting Python for each line."""
        with CloneCommands(program, self.folder, {"LLMGATEWAY_API_KEY": self.key, **self.environment}) as commands:

            def run(line: str, folder: Path | None = None, typed: str = "", status: int | None = 0) -> str:
                ended, output = commands.run(shlex.split(line), folder or self.folder, typed)
                return _check(f"./{program} {line}", output, ended, status)

            yield run

    def browse(self) -> PlainBrowser:
        return PlainBrowser(self.address)

    def terminal(self, *command: str) -> Terminal:
        """Start a program of the clone on a terminal."""
        return Terminal(command, self.folder, self.environment)


def _check(text: str, output: str, ended: int, status: int | None) -> str:
    """Return the output of a command that ended as it must."""
    assert not any(fault in output for fault in FAULTS), f"$ {text}\n{output}"
    allowed = (0, 1, 2) if status is None else (status,)
    assert ended in allowed, f"$ {text}\nexit status {ended}\n{output}"
    return output


def _only(pattern: str, text: str) -> str:
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(set(found)) == 1, f"{pattern}: {found} in\n{text}"
    return str(found[0])
