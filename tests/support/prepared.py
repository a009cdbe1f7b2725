"""The common parts of all gateways of a test run, computed once per process: catalogue, salt, secrets, their hashes.

The suite starts hundreds of gateways in a process; the product starts one per worker.
"""

import importlib
import sys
from contextlib import suppress
from pathlib import Path

from gateway.catalogue import layers, loader
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.layers import Layer
from gateway.runtime.lazy_import import LazyImport
from gateway.store import installation_identity as identity
from gateway.store import migrations
from gateway.store.database import Database

# Models that tests call never retire: gateways of tests read this folder above the product's catalogue.
PINNED = str(Path(__file__).parent / "pinned_catalogue")
# The variables of every gateway in a test process.
ENVIRONMENT = {"GATEWAY_ENV": "test", "GATEWAY_CATALOGUE_PATH": PINNED}
# Secrets of installations that get them from the environment, as those on PostgreSQL do.
SECRETS = {identity.HASH_SECRET: "hash-secret-of-tests", identity.ENCRYPTION_KEY: "encryption-key-of-tests"}
# Secrets of installations that keep them in files.
FILES = {name: f"{value}-in-a-file" for name, value in SECRETS.items()}
SALT = "salt-of-tests"

_layers: dict[Path, Layer] = {}
_merged: dict[tuple[int, ...], Layer] = {}
_catalogues: list[Catalogue] = []


# urllib3 opens a socket when it is imported, and a program that is forked later must not inherit the event loop of it.
OPENS_SOCKET = "gateway.telemetry.otlp_session"


def import_late() -> None:
    """Import the modules that the product imports on first use. Later, in a thread, they would create loggers while
    pytest reads the list of them."""
    for loaded in [module for name, module in sys.modules.items() if name.startswith("gateway.")]:
        for value in list(vars(loaded).values()):
            if type(value) is LazyImport and value._name != OPENS_SOCKET:
                with suppress(ModuleNotFoundError):  # of optional packages
                    importlib.import_module(value._name)


def keep_catalogue() -> None:
    """Read the product's layers and build its catalogue once: no test changes their files."""
    if _layers:
        return
    snapshot = loader.FOLDER / loader.SNAPSHOT
    _layers[snapshot] = layers.read_snapshot(snapshot)
    for folder in (loader.FOLDER, Path(PINNED)):
        _layers[folder] = layers.read_folder(folder)
    loader.read_snapshot = _read_snapshot  # type: ignore[assignment]
    loader.read_folder = _read_folder  # type: ignore[assignment]
    loader.overlay = _overlay  # type: ignore[assignment]
    for path in ("", PINNED):
        _catalogues.extend(loader.load(path, sandbox=sandbox) for sandbox in (True, False))


def _read_snapshot(path: Path) -> Layer:
    return _layers.get(path) or layers.read_snapshot(path)


def _read_folder(folder: Path) -> Layer:
    return _layers.get(folder) or layers.read_folder(folder)


def _overlay(parts: list[Layer]) -> Layer:
    key = tuple(id(part) for part in parts)
    if not {id(layer) for layer in _layers.values()}.issuperset(key):
        return layers.overlay(parts)
    if key not in _merged:
        _merged[key] = layers.overlay(parts)
    return _merged[key]


def keep_migrations() -> None:
    """Read the product's migrations once; every gateway and command compares them with its store."""
    read = migrations._list_steps
    steps = read(migrations.DIRECTORY)

    def list_steps(directory: Path) -> list[migrations.Step]:
        return steps if directory == migrations.DIRECTORY else read(directory)

    migrations._list_steps = list_steps


def keep_fingerprints() -> None:
    """Compute the slow hashes of the secrets, for processes that are forked from this one."""
    for value in (*SECRETS.values(), *FILES.values()):
        identity.fingerprint(value, SALT)


def settle(database: Database) -> None:
    """Give a migrated store the salt of the test installations."""
    identity.set_value(database, identity.SALT, SALT)


def write_secrets(data: Path) -> None:
    """Write the secrets into a data folder, as the first start of an installation does."""
    for name, value in FILES.items():
        file = data / name.lower()
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(f"{value}\n")
