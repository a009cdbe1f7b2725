"""Choose the installation that a command works on: that of the gateway running from this code (found in /proc)."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from gateway.configuration import settings
from gateway.configuration.settings import ROOT, DatabaseSettings
from gateway.errors import InvalidRequest
from gateway.operator.output import is_json
from gateway.secret_text import mask_address
from gateway.store.sqlite import DATABASE_FILE

PROC = Path("/proc")
SERVER = b"gateway.server.launch"
# Setting one of these variables chooses an installation.
CHOICES = ("DATABASE_URL", "DATABASE_URL_FILE", "GATEWAY_DATA_DIR", "GATEWAY_CONFIG")
DATA = "GATEWAY_DATA_DIR"
SQLITE = "sqlite:///"
PATHS = (DATA, "GATEWAY_CONFIG", "GATEWAY_CATALOGUE_PATH", "UPLOAD_DIR")
_origin: list[str] = []  # how the installation was found, for `announce`


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """The process of a gunicorn master and its environment with absolute paths."""

    pid: int
    environment: Mapping[str, str] = field(repr=False)

    @property
    def place(self) -> tuple[str, ...]:
        """The values that identify an installation."""
        return tuple(self.environment.get(name, "") for name in CHOICES)


def adopt() -> None:
    """Take the environment variables of the running gateway that this process does not set.

    If the caller chose an installation, only its gateway is used. If no gateway is running and the current folder has
    no data, the data folder of the checkout is used. Raises InvalidRequest if several installations are running and the
    caller chose none.
    """
    _origin.clear()
    own = settings.inherited()
    chosen = {name: own[name] for name in CHOICES if own.get(name)}
    required = [(name, value) for name, value in absolute(chosen, Path.cwd()).items() if name in chosen]
    gateways: dict[tuple[str, ...], RunningGateway] = {}
    for gateway in find_gateways():  # workers look like their master, which has the lowest process id
        if all(gateway.environment.get(name) == value for name, value in required):
            gateways.setdefault(gateway.place, gateway)
    if len(gateways) > 1 and not chosen:
        environments = [gateway.environment for gateway in gateways.values()]
        places = ", ".join(sorted(values.get(DATA) or values["GATEWAY_CONFIG"] for values in environments))
        raise InvalidRequest(f"Several gateways are running. Choose one with {DATA}: {places}.")
    if len(gateways) == 1:
        (gateway,) = gateways.values()
        settings.adopt(gateway.environment)
        _origin.append(f"of the running gateway (process {gateway.pid})")
    elif not chosen and not (Path("data") / DATABASE_FILE).exists() and (ROOT / "data" / DATABASE_FILE).exists():
        settings.adopt({DATA: str(ROOT / "data")})


def find_gateways(proc: Path = PROC) -> Iterator[RunningGateway]:
    """Return this user's gunicorn masters that run from this code; none on systems without /proc."""
    masters = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if SERVER in words and _code_of(words) == ROOT:
                environment = (folder / "environ").read_bytes()
                masters.append((int(folder.name), environment, (folder / "cwd").readlink()))
        except OSError:
            continue  # The process has ended, or belongs to another user.
    for pid, text, folder in sorted(masters):
        pairs = (part.partition(b"=")[::2] for part in text.split(b"\0") if b"=" in part)
        yield RunningGateway(pid, absolute({os.fsdecode(k): os.fsdecode(v) for k, v in pairs}, folder))


def absolute(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with relative paths resolved against `folder`."""
    resolved = dict(environment)
    # The configuration file may set the data folder.
    if resolved.get(DATA) or not resolved.get("GATEWAY_CONFIG"):
        resolved.setdefault(DATA, "data")
    for name, value in resolved.items():
        if value and (name in PATHS or name.endswith("_FILE")):
            resolved[name] = str(folder / value)
    url = resolved.get("DATABASE_URL", "")
    if url.startswith(SQLITE):
        resolved["DATABASE_URL"] = f"{SQLITE}{folder / url.removeprefix(SQLITE)}"
    return resolved


def announce(chosen: DatabaseSettings) -> None:
    """Print on standard error which database the command uses, once and before the command uses it."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or not seeks() or is_json() or ctx.meta.get(DATA):
        return
    ctx.meta[DATA] = True
    click.echo(" ".join([f"Database: {describe(chosen)}", *_origin]), err=True)


def seeks() -> bool:
    """Return whether this command looks for the running gateway (`./manage` does)."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.obj)


def describe(chosen: DatabaseSettings) -> str:
    """Return the URL or file of the database, without a password."""
    if chosen.scheme != "sqlite":
        return mask_address(chosen.url)
    path = file_of(chosen)
    if path.exists():
        return str(path)
    return f"{path} (does not exist yet)"


def file_of(chosen: DatabaseSettings) -> Path:
    """Return the path of the SQLite file, which may not exist."""
    if chosen.url:
        return Path(chosen.url.removeprefix(SQLITE)).absolute()
    return (Path(chosen.data_dir) / DATABASE_FILE).absolute()


def _code_of(words: list[bytes]) -> Path | None:
    """Return the code folder in the command line of a server."""
    if b"--pythonpath" not in words[:-1]:
        return None
    folder = Path(os.fsdecode(words[words.index(b"--pythonpath") + 1]))
    if folder.name == "launch":
        return folder.parent
    return folder
