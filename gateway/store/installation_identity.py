"""What belongs to one installation: named values, its two secrets, and the proof that they are still the same."""

import base64
import hashlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.configuration import settings
from gateway.store.database import Database

HASH_SECRET = "GATEWAY_API_KEY_HASH_SECRET"
ENCRYPTION_KEY = "GATEWAY_ENCRYPTION_KEY"
SALT = "fingerprint_salt"
MIN_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Secrets:
    """Newest first: the first one makes new hashes and ciphertexts, the others still read old ones."""

    hash_keys: tuple[bytes, ...] = field(repr=False)
    encryption_keys: tuple[str, ...] = field(repr=False)


def get_value(database: Database, name: str) -> str | None:
    """A value of this installation, None when it was never set."""
    sql = "SELECT value FROM installation WHERE name = ?"
    found = database.read(lambda: database.execute(sql, (name,)).fetchone())
    if found:
        return found[0]
    return None


def set_value(database: Database, name: str, value: str) -> None:
    sql = "INSERT INTO installation (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    database.write(lambda: database.execute(sql, (name, value)))


def claim_value(database: Database, name: str, value: str) -> str:
    """Set a value unless there is one; what counts from now on, the same for every process."""
    sql = "INSERT INTO installation (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
    database.write(lambda: database.execute(sql, (name, value)))
    return get_value(database, name) or value


def load_secrets(config: settings.Settings, database: Database) -> Secrets:
    """The secrets of the environment, or on SQLite those of the files in data_dir, made once.

    Each may list several, separated by commas, newest first. SettingsError when one is missing, too short, or not
    the one that this database was used with.
    """
    salt = claim_value(database, SALT, secrets.token_hex(16))
    hashes = _load(config, database, HASH_SECRET, salt, lambda: secrets.token_urlsafe(32))
    encryption = _load(config, database, ENCRYPTION_KEY, salt, _make_encryption_key)
    return Secrets(tuple(key.encode() for key in hashes), tuple(encryption))


def check_secrets(config: settings.Settings) -> None:
    """SettingsError tells, one line each, which secrets are missing or too short; no database is asked."""
    problems = []
    for name in (HASH_SECRET, ENCRYPTION_KEY):
        try:
            _keys_of(config, name, config.database.scheme)
        except settings.SettingsError as error:
            problems.append(str(error))
    if problems:
        raise settings.SettingsError("\n".join(problems))


def key_beside_data(config: settings.Settings) -> Path | None:
    """The file of the encryption key when a copy of the data folder holds both it and what it encrypts; else None."""
    data = Path(config.database.data_dir).resolve()
    if config.database.scheme != "sqlite":
        return None
    url = config.database.url
    if url and not Path(url.removeprefix("sqlite:///")).resolve().is_relative_to(data):
        return None
    named = config.environment.get(f"{ENCRYPTION_KEY}_FILE", "")
    if not named and config.secret(ENCRYPTION_KEY):
        return None
    if named:
        path = Path(named).resolve()
    else:
        path = data / ENCRYPTION_KEY.lower()
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
    """What is set of a secret, newest first; () where a file of the data folder is to have it, for a store of this
    kind."""
    text = config.secret(name)
    if not text and kind == "postgresql":
        raise settings.SettingsError(f"{name} (or {name}_FILE) is required with PostgreSQL: set a long random value")
    if text:
        return _split(name, text)
    return ()


def _split(name: str, text: str) -> tuple[str, ...]:
    keys = tuple(part.strip() for part in text.split(",") if part.strip())
    if not keys or min(len(key) for key in keys) < MIN_LENGTH:
        raise settings.SettingsError(f"{name} must be at least {MIN_LENGTH} characters long")
    return keys


def _read_or_make(path: Path, name: str, fresh: bool, make: Callable[[], str]) -> str:
    """The secret in the file; a new one where the database was never used with any."""
    try:
        if not path.exists():
            if not fresh:
                raise settings.SettingsError(f"{name}: the file {path} is gone; restore it, or set the variable")
            _make_file(path, make())
        return path.read_text().strip()
    except OSError as error:
        raise settings.SettingsError(f"{name}: cannot use {path}: {error.strerror}") from None


def _make_file(path: Path, text: str) -> None:
    """Write whole or not at all; of two processes that start at once, the first one's file stays."""
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
    """Refuse a list without the newest secret in use; remember the first of the list as the newest from now on."""
    prints = [_fingerprint(key, salt) for key in keys]
    known = known or claim_value(database, _fingerprint_name(name), prints[0])
    if known not in prints:
        raise settings.SettingsError(
            f"{name} is not the secret that this database was used with: restore it, or keep it in the list after "
            "the new one"
        )
    if known != prints[0]:
        set_value(database, _fingerprint_name(name), prints[0])


def _fingerprint_name(name: str) -> str:
    return f"fingerprint_{name.removeprefix('GATEWAY_').lower()}"


def _fingerprint(key: str, salt: str) -> str:
    # Slow on purpose: who reads the table must not be able to guess a weak secret.
    return hashlib.scrypt(key.encode(), salt=salt.encode(), n=2**13, r=8, p=1, dklen=16).hex()


def _make_encryption_key() -> str:
    # The form that Fernet takes: 32 bytes, URL-safe base64.
    return base64.urlsafe_b64encode(os.urandom(32)).decode()
