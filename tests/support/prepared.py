"""The common parts of all gateways of a test run, computed once per process: catalogue, salt, secrets, their hashes.

The suite starts hundreds of gateways in a process; the product starts one per worker.
"""

from pathlib import Path
from typing import Any

from gateway.catalogue import layers, loader
from gateway.store import installation_identity as identity
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

_kept: list[Any] = []


def keep_catalogue() -> None:
    """Hold the product's layers and catalogue, so that further loads in this process share them."""
    if _kept:
        return
    _kept[:] = [
        layers.read_snapshot(loader.FOLDER / loader.SNAPSHOT),
        layers.read_folder(loader.FOLDER),
        layers.read_folder(Path(PINNED)),
        *(loader.load(path, sandbox=sandbox) for path in ("", PINNED) for sandbox in (True, False)),
    ]


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
