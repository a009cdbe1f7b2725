"""The identity of one installation: named values, its two secrets, and the check that the secrets are unchanged."""

import base64
import functools
import hashlib
import json
import os
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gateway.configuration import settings
from gateway.configuration.file import SettingsError
from gateway.store.database import Database

HASH_SECRET = "GATEWAY_API_KEY_HASH_SECRET"
ENCRYPTION_KEY = "GATEWAY_ENCRYPTION_KEY"
SALT = "fingerprint_salt"
MIN_LENGTH = 16
WORKER_REPORTS = "worker"  # kind of the documents in which workers report themselves (telemetry/presence.py)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets, newest first: the first one makes new hashes and ciphertexts, the others still read old ones.
    `fingerprints` identify all of them, so that other nodes can see which secrets this one knows."""

    hash_keys: tuple[bytes, ...] = field(repr=False)
    encryption_keys: tuple[str, ...] = field(repr=False)
    fingerprints: tuple[str, ...] = ()


def get_value(database: Database, name: str) -> str | None:
    """Return a value of this installation, or None when it was never set."""
    row = database.query_row("SELECT value FROM installation WHERE name = ?", (name,))
    if row:
        value: str = row[0]
        return value
    return None


def set_value(database: Database, name: str, value: str) -> None:
    sql = "INSERT INTO installation (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    database.change_rows(sql, (name, value))


def claim_value(database: Database, name: str, value: str) -> str:
    """Set a value unless one exists; returns the value in force, the same for every process."""
    sql = "INSERT INTO installation (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
    database.change_rows(sql, (name, value))
    return get_value(database, name) or value


def load_secrets(config: settings.Settings, database: Database) -> Secrets:
    """Return the secrets of the environment, or on SQLite those of files in data_dir, which are created once.

    Each may list several values, separated by commas, newest first. SettingsError when one is missing, too short, or
    not the one that this database was used with.
    """
    salt = claim_value(database, SALT, secrets.token_hex(16))
    hashes = _load(config, database, HASH_SECRET, salt, partial(secrets.token_urlsafe, 32))
    encryption = _load(config, database, ENCRYPTION_KEY, salt, _make_encryption_key)
    prints = tuple(fingerprint(key, salt) for key in (*hashes, *encryption))
    return Secrets(tuple(key.encode() for key in hashes), tuple(encryption), prints)


def check_secrets(config: settings.Settings) -> None:
    """SettingsError with one line for each secret that is missing or too short. Does not access the database."""
    problems = []
    for name in (HASH_SECRET, ENCRYPTION_KEY):
        try:
            _keys_of(config, name, config.database.scheme)
        except SettingsError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError("\n".join(problems))


def key_beside_data(config: settings.Settings) -> Path | None:
    """Return the file of the encryption key when it lies in the data folder beside the data that it encrypts, so that
    a copy of the folder contains both; else None."""
    data = Path(config.database.data_dir).resolve()
    if config.database.scheme != "sqlite":
        return None
    url = config.database.url
    if url and not Path(url.removeprefix("sqlite:///")).resolve().is_relative_to(data):
        return None
    named = config.environment.get(f"{ENCRYPTION_KEY}_FILE", "")
    if not named and config.secret(ENCRYPTION_KEY):
        return None
    path = Path(named).resolve() if named else data / ENCRYPTION_KEY.lower()
    if path.is_relative_to(data) and path.exists():
        return path
    return None


def _load(
    config: settings.Settings, database: Database, name: str, salt: str, make: Callable[[], str]
) -> tuple[str, ...]:
    known = get_value(database, _fingerprint_name(name))
    keys = _keys_of(config, name, database.kind)
    if not keys:
        keys = _split(name, _read_or_make(Path(config.database.data_dir) / name.lower(), name, known is None, make))
    _check_fingerprint(database, name, salt, keys, known)
    return keys


def _keys_of(config: settings.Settings, name: str, kind: str) -> tuple[str, ...]:
    """Return the configured values of a secret, newest first; () where a store of this kind keeps it in a file."""
    text = config.secret(name)
    if not text and kind == "postgresql":
        raise SettingsError(f"{name} (or {name}_FILE) is required with PostgreSQL: set a long random value")
    if text:
        return _split(name, text)
    return ()


def _split(name: str, text: str) -> tuple[str, ...]:
    keys = tuple(part.strip() for part in text.split(",") if part.strip())
    if not keys or min(len(key) for key in keys) < MIN_LENGTH:
        raise SettingsError(f"{name} must be at least {MIN_LENGTH} characters long")
    return keys


def _read_or_make(path: Path, name: str, fresh: bool, make: Callable[[], str]) -> str:
    """Return the secret in the file, created first when the database was never used with one."""
    try:
        if not path.exists():
            if not fresh:
                raise SettingsError(f"{name}: the file {path} is missing; restore it, or set the variable")
            _make_file(path, make())
        return path.read_text().strip()
    except OSError as error:
        raise SettingsError(f"{name}: cannot use {path}: {error.strerror}") from None


def _make_file(path: Path, text: str) -> None:
    """Write the file atomically; of two processes that start at once, the first one's file stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def _check_fingerprint(database: Database, name: str, salt: str, keys: tuple[str, ...], known: str | None) -> None:
    """Refuse a list without the secret in use, and record the first of the list as the one in use."""
    prints = [fingerprint(key, salt) for key in keys]
    known = known or claim_value(database, _fingerprint_name(name), prints[0])
    if known not in prints:
        raise SettingsError(
            f"{name} is not the secret that this database was used with: restore it, or keep it in the list after "
            "the new one"
        )
    if known != prints[0]:
        _check_other_nodes(database, name, prints[0])
        set_value(database, _fingerprint_name(name), prints[0])


def _check_other_nodes(database: Database, name: str, first: str) -> None:
    """SettingsError if a node that runs now does not know the secret that this one would use from now on: it would
    refuse what is hashed or encrypted with it. Workers of earlier releases do not say what they know."""
    sql = (
        "SELECT w.node, d.value FROM worker w JOIN document d ON d.kind = ? AND d.key = CAST(w.epoch AS VARCHAR(40)) "
        f"WHERE w.expires_at > {database.moment_sql()}"
    )
    for node, value in database.query_rows(sql, (WORKER_REPORTS,)):
        known = json.loads(bytes(value)).get("secrets")
        host = node.partition(" ")[0].partition(":")[0]
        if known and first not in known and host != platform.node():
            raise SettingsError(
                f"{name}: the node {node} does not know the first secret of the list yet. Append a new secret to the "
                "end of the list on every node and restart them all; then move it to the front"
            )


def _fingerprint_name(name: str) -> str:
    return f"fingerprint_{name.removeprefix('GATEWAY_').lower()}"


@functools.lru_cache(maxsize=8)
def fingerprint(key: str, salt: str) -> str:
    """Return the hash by which a store recognises its secret."""
    # Slow on purpose: a reader of the table must not be able to guess a weak secret.
    return hashlib.scrypt(key.encode(), salt=salt.encode(), n=2**13, r=8, p=1, dklen=16).hex()


def _make_encryption_key() -> str:
    # The format of Fernet keys: 32 bytes in URL-safe base64.
    return base64.urlsafe_b64encode(os.urandom(32)).decode()
