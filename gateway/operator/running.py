"""Which installation a command works on: that of the gateway that runs from this code, as /proc tells it on Linux."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from gateway.configuration import settings
from gateway.configuration.effective_values import mask
from gateway.configuration.settings import ROOT, DatabaseSettings
from gateway.errors import InvalidRequest
from gateway.operator.output import is_json
from gateway.store.sqlite import FILE

PROC = Path("/proc")
SERVER = b"gateway.server.launch"
# Whoever sets one of these says which installation is meant.
CHOICES = ("DATABASE_URL", "DATABASE_URL_FILE", "GATEWAY_DATA_DIR", "GATEWAY_CONFIG")
DATA = "GATEWAY_DATA_DIR"
SQLITE = "sqlite:///"
PATHS = (DATA, "GATEWAY_CONFIG", "GATEWAY_CATALOGUE_PATH", "UPLOAD_DIR")
_found: list[str] = []  # where the installation was found, for `announce`


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A master's process and its environment, in which every path is absolute."""

    pid: int
    environment: Mapping[str, str] = field(repr=False)

    @property
    def place(self) -> tuple[str, ...]:
        """What tells installations apart."""
        return tuple(self.environment.get(name, "") for name in CHOICES)


def adopt() -> None:
    """Let this command see what the running gateway sees: its variables, where this process has none of that name.

    Where the caller chose an installation, only a gateway of that one counts. Where none runs, a data folder of the
    checkout serves if the current folder has none. InvalidRequest when several installations run and none was
    chosen."""
    _found.clear()
    own = settings.inherited()
    chosen = {name: own[name] for name in CHOICES if own.get(name)}
    wanted = [(name, value) for name, value in absolute(chosen, Path.cwd()).items() if name in chosen]
    gateways: list[RunningGateway] = []
    for one in find_gateways():  # workers look like their master, which has the lowest number
        fits = all(one.environment.get(name) == value for name, value in wanted)
        gateways += [one] if fits and one.place not in [known.place for known in gateways] else []
    if len(gateways) > 1 and not chosen:
        places = ", ".join(sorted(one.environment.get(DATA) or one.environment["GATEWAY_CONFIG"] for one in gateways))
        raise InvalidRequest(f"Several gateways run; choose one with {DATA}: {places}.")
    if len(gateways) == 1:
        settings.adopt(gateways[0].environment)
        _found.append(f"of the gateway that runs as process {gateways[0].pid}")
    elif not chosen and not (Path("data") / FILE).exists() and (ROOT / "data" / FILE).exists():
        settings.adopt({DATA: str(ROOT / "data")})


def find_gateways(proc: Path = PROC) -> Iterator[RunningGateway]:
    """The masters of this user that run from this code; none where there is no /proc."""
    masters = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if SERVER in words and _code_of(words) == ROOT:
                environment = (folder / "environ").read_bytes()
                masters.append((int(folder.name), environment, (folder / "cwd").readlink()))
        except OSError:
            continue  # It has ended meanwhile, or is somebody else's.
    for pid, text, folder in sorted(masters):
        pairs = (part.partition(b"=")[::2] for part in text.split(b"\0") if b"=" in part)
        yield RunningGateway(pid, absolute({os.fsdecode(k): os.fsdecode(v) for k, v in pairs}, folder))


def absolute(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """An environment in which paths mean elsewhere what they mean in `folder`."""
    found = dict(environment)
    if not (found.get("GATEWAY_CONFIG") and not found.get(DATA)):  # the file may tell the data folder
        found.setdefault(DATA, "data")
    for name, value in found.items():
        if value and (name in PATHS or name.endswith("_FILE")):
            found[name] = str(folder / value)
    url = found.get("DATABASE_URL", "")
    if url.startswith(SQLITE):
        found["DATABASE_URL"] = f"{SQLITE}{folder / url.removeprefix(SQLITE)}"
    return found


def announce(chosen: DatabaseSettings) -> None:
    """Say on standard error which database is used, once and before anything is done with it."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or not seeks() or is_json() or ctx.meta.get(DATA):
        return
    ctx.meta[DATA] = True
    click.echo(" ".join([f"Database: {describe(chosen)}", *_found]), err=True)


def seeks() -> bool:
    """Whether this command was started so that it looks for the gateway that runs."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.obj)


def describe(chosen: DatabaseSettings) -> str:
    """The database as its operator knows it, without a password."""
    if chosen.scheme != "sqlite":
        return mask(chosen.url)
    path = file_of(chosen)
    if path.exists():
        return str(path)
    return f"{path} (not there yet)"


def file_of(chosen: DatabaseSettings) -> Path:
    """Where the file of an SQLite database is, or would be."""
    return (Path(chosen.url.removeprefix(SQLITE)) if chosen.url else Path(chosen.data_dir) / FILE).absolute()


def _code_of(words: list[bytes]) -> Path | None:
    """The folder of the code that a server's command line names."""
    if b"--pythonpath" not in words[:-1]:
        return None
    named = Path(os.fsdecode(words[words.index(b"--pythonpath") + 1]))
    if named.name == "launch":
        return named.parent
    return named
