"""The operator's configuration file: settings, secrets by reference, providers with their keys, models, prices and
aliases.

```toml
[server]                               # every section of the settings
port = 4001
[secrets]                              # by reference only: env:NAME or file:PATH
encryption_key = "file:/run/secrets/encryption_key"
[providers.openai]                     # a provider of the catalogue, or one more
api_key = ["env:OPENAI_KEY_ONE", "env:OPENAI_KEY_TWO"]
[[providers.openai.mappings]]
model = "gpt-4o-mini"
prices = { prompt = "0.0000001", completion = "0.0000004" }
[[models]]
id = "house-model"
[aliases]
fast = "gpt-4o-mini"
```
"""

import difflib
import re
import tomllib
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.configuration.setting_checks import suggest_similar

# Line numbers of entries in a TOML file, for error messages. They are searched only when a message needs them.

TABLE_HEADER = re.compile(r"\s*+\[\[?([^\[\]]++)\]")
KEY = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([\w.-]+))\s*=""")


class TomlLines:
    """The lines of a TOML text. Tables are named like their headers; "" is the part before the first header."""

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, table: str, key: str = "", nth: int = 0) -> int:
        """Return the line of a key, from 1.

        Return the line of the table's header if the key is not found or "", and 0 if neither is found. `nth` is the
        number of tables with the same name before it, as with [[…]].
        """
        here = table == ""
        seen = -1
        header_line = 0
        for number, line in enumerate(self._text.splitlines(), 1):
            header = TABLE_HEADER.match(line)
            if header and not KEY.match(line):
                same = "".join(header[1].split()).replace('"', "").replace("'", "") == table
                seen += same
                here = same and seen == nth
                if here:
                    header_line = number
            elif here and key and (match := KEY.match(line)) and key in match.groups():
                return number
        return header_line


@dataclass(frozen=True, slots=True)
class TomlPlace:
    """A location in the file `name` for messages.

    `table` is its header, `nth` as in `TomlLines.find`, and `entry` its description ("" if the file name is enough).
    """

    name: str
    entry: str = ""
    lines: TomlLines | None = None
    table: str = ""
    nth: int = 0

    def at(self, key: str = "") -> str:
        """Return file, line and description; with `key` the line of that key."""
        line = self.lines.find(self.table, key, self.nth) if self.lines is not None else 0
        where = f"{self.name}:{line}" if line else self.name
        if self.entry:
            return f"{where}: {self.entry}"
        return where

    def __str__(self) -> str:
        return self.at()


NAME = "gateway.toml"
# Keys in the environment mapping for the file's entries on providers; an operator cannot set them as variables.
PREFIX = f"{NAME}/"
ENV = "env:"
FILE = "file:"
REFERENCE = 'refer to it, as "env:NAME" or "file:PATH"'
CATALOGUE = ("providers", "models", "aliases")
SECRETS = "secrets"
API_KEY = "api_key"
CLIENT_SECRET = "client_secret"
IDENTITY_PROVIDERS = "identity_providers"
BASE_URL = "base_url"
VALUES = "values"
PROXY = "proxy"
# The way to the addresses of a provider. The files are relative to the folder of gateway.toml.
ROUTE_KEYS = (PROXY, "ca_file", "client_certificate_file", "client_key_file")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The contents of the file; everything is empty if there is none.

    `sections` are settings by section, with references resolved. `environment` is the fallback for look-ups of secrets
    and provider keys that the environment does not set; `references` are their sources, by the same names. `catalogue`
    has the tables of a catalogue: providers by id, models, aliases. `identity_providers` are the tables of these, by
    id, with references resolved. `lines` are those of the file's text.
    """

    path: str = ""
    sections: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    references: Mapping[str, str] = field(default_factory=dict)
    catalogue: Mapping[str, Any] = field(default_factory=dict)
    identity_providers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    variables: frozenset[str] = frozenset()  # variables that the file refers to
    lines: TomlLines | None = field(default=None, repr=False, compare=False)


def variable(provider_id: str, what: str) -> str:
    """Return the key of a provider's API key, base URL or value in the environment mapping."""
    return f"{PREFIX}{provider_id}/{what}"


def missing_file(path: Path) -> str:
    """Return the message for a missing file, with similar names in its folder."""
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"{path}: there is no such file, and no folder {path.parent}"
    matches = difflib.get_close_matches(path.name, siblings, 2, 0.6)
    return f"{path}: there is no such file" + (f"; did you mean {' or '.join(matches)}?" if matches else "")


def read(
    path: Path,
    environment: Mapping[str, str],
    sections: Mapping[str, Collection[str]],
    secrets: Mapping[str, str],
    problems: list[str],
) -> ConfigFile:
    """Read the file at `path`.

    `sections` are the settings' sections with their keys, `secrets` the variables for the keys of [secrets]. Each
    problem is added to `problems` as a line.
    """
    try:
        text = path.read_text()
        tree = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        problems.append(missing_file(path) if isinstance(error, FileNotFoundError) else f"{path}: {reason}")
        return ConfigFile(str(path))
    return _Reader(path, TomlLines(text), environment, problems).read(tree, sections, secrets)


class _Reader:
    """A single read of a file."""

    def __init__(self, path: Path, lines: TomlLines, environment: Mapping[str, str], problems: list[str]) -> None:
        self._path = path
        self._lines = lines
        self._environment = environment
        self._problems = problems
        self._fallbacks: dict[str, str] = {}
        self._references: dict[str, str] = {}
        self._variables: set[str] = set()

    def read(
        self, tree: dict[str, Any], sections: Mapping[str, Collection[str]], secrets: Mapping[str, str]
    ) -> ConfigFile:
        known = {*sections, *CATALOGUE, SECRETS, IDENTITY_PROVIDERS}
        ready = {}
        for name, value in tree.items():
            if name not in known:
                self._note(f"there is no section [{name}]{suggest_similar(name, known)}", name)
            elif name in sections:
                ready[name] = self._section(name, value, sections[name])
        for name, value in self._table(tree, SECRETS).items():
            if name not in secrets:
                self._note(f"[{SECRETS}] there is no secret {name}{suggest_similar(name, secrets)}", SECRETS, name)
            else:
                self._keep(secrets[name], value, SECRETS, name)
        providers = self._table(tree, "providers")
        catalogue = {
            "providers": {ident: self._provider(ident, value) for ident, value in providers.items()},
            "models": tree.get("models", []),
            "aliases": tree.get("aliases", {}),
        }
        identity_providers = {
            ident: self._identity_provider(ident, value)
            for ident, value in self._table(tree, IDENTITY_PROVIDERS).items()
        }
        return ConfigFile(
            str(self._path),
            ready,
            self._fallbacks,
            self._references,
            catalogue,
            identity_providers,
            frozenset(self._variables),
            self._lines,
        )

    def _note(self, text: str, table: str, key: str = "") -> None:
        self._problems.append(f"{TomlPlace(self._path.name, '', self._lines, table).at(key)}: {text}")

    def _table(self, tree: dict[str, Any], name: str) -> dict[str, Any]:
        value = tree.get(name, {})
        if isinstance(value, dict):
            return value
        self._note(f"[{name}] must be a table", "", name)
        return {}

    def _section(self, name: str, values: Any, keys: Collection[str]) -> dict[str, Any]:
        if not isinstance(values, dict):
            self._note(f"[{name}] must be a table", "", name)
            return {}
        for key in values:
            if key not in keys:
                self._note(f"[{name}] there is no setting {key}{suggest_similar(key, keys)}", name, key)
        return {key: self._resolve(value, name, key) for key, value in values.items() if key in keys}

    def _provider(self, ident: str, value: Any) -> dict[str, Any]:
        """Return the catalogue's fields of a provider; keep the others for look-ups."""
        table = f"providers.{ident}"
        if not isinstance(value, dict):
            self._note(f"[{table}] must be a table", "providers", ident)
            return {}
        rest = dict(value)
        if API_KEY in rest:
            self._keep(variable(ident, API_KEY), rest.pop(API_KEY), table, API_KEY)
        plain = {BASE_URL: rest.pop(BASE_URL)} if BASE_URL in rest else {}
        plain |= self._route(table, rest)
        values = rest.pop(VALUES, {})
        if not isinstance(values, dict):
            self._note(f"[{table}] {VALUES} must be a table", table, VALUES)
            values = {}
        for name, text in (plain | values).items():
            resolved = self._resolve(text, table, name)
            if not isinstance(resolved, str):
                self._note(f"[{table}] {name}: expected text, got {resolved!r}", table, name)
            else:
                self._fallbacks[variable(ident, name)] = resolved
                if self._is_reference(text):
                    self._references[variable(ident, name)] = text
                else:
                    self._references[variable(ident, name)] = ""
        return rest

    def _route(self, table: str, rest: dict[str, Any]) -> dict[str, Any]:
        """Take the keys of the way to a provider out of its table."""
        taken = {key: rest.pop(key) for key in ROUTE_KEYS if key in rest}
        proxy = taken.get(PROXY)
        if isinstance(proxy, str) and "@" in proxy:
            self._note(f"[{table}] {PROXY}: a password must not be written in this file; {REFERENCE}", table, PROXY)
        for key, value in taken.items():
            if key != PROXY and isinstance(value, str) and value and not self._is_reference(value):
                taken[key] = str(self._place(value))
        return taken

    def _identity_provider(self, ident: str, value: Any) -> Any:
        """Return the table of an identity provider with its references resolved; its secret must be a reference."""
        table = f"{IDENTITY_PROVIDERS}.{ident}"
        if not isinstance(value, dict):
            return value
        secret = value.get(CLIENT_SECRET, ENV)
        if not self._is_reference(secret):
            self._note(f"[{table}] {CLIENT_SECRET}: a secret must not be written in this file; {REFERENCE}", table)
        return {key: self._resolve(entry, table, key) for key, entry in value.items()}

    def _keep(self, name: str, value: Any, table: str, key: str) -> None:
        """Store a secret, which must be a reference or a list of references."""
        items = value if isinstance(value, list) else [value]
        if not items or not all(self._is_reference(item) for item in items):
            self._note(f"[{table}] {key}: a secret must not be written in this file; {REFERENCE}", table, key)
            return
        self._references[name] = ", ".join(items)
        if len(items) == 1 and items[0].startswith(FILE):
            # The file is read when the secret is looked up, like any NAME_FILE.
            self._fallbacks[f"{name}_FILE"] = str(self._place(items[0].removeprefix(FILE)))
            self._check(Path(self._fallbacks[f"{name}_FILE"]), table, key)
            return
        self._fallbacks[name] = ",".join(str(self._resolve(item, table, key)) for item in items)

    def _is_reference(self, value: Any) -> bool:
        return isinstance(value, str) and value.startswith((ENV, FILE))

    def _resolve(self, value: Any, table: str, key: str) -> Any:
        """Return the value that a reference refers to; other values stay unchanged."""
        if not self._is_reference(value):
            return value
        if value.startswith(ENV):
            name = value.removeprefix(ENV)
            self._variables.add(name)
            if not self._environment.get(name):
                problem = f"[{table}] {key}: the variable {name} is not set{suggest_similar(name, self._environment)}"
                self._note(problem, table, key)
            return self._environment.get(name, "")
        path = self._place(value.removeprefix(FILE))
        if self._check(path, table, key):
            return path.read_text().strip()
        return ""

    def _check(self, path: Path, table: str, key: str) -> bool:
        try:
            with path.open(encoding="utf-8") as file:
                file.read(1)
            return True
        except FileNotFoundError:
            self._note(f"[{table}] {key}: {missing_file(path)}", table, key)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a text file"
            self._note(f"[{table}] {key}: cannot read {path}: {reason}", table, key)
        return False

    def _place(self, text: str) -> Path:
        """Return a path from the file, relative to its folder."""
        return self._path.parent / text


# Secrets from an environment variable, or from the file that another variable names.


class SettingsError(Exception):
    """All problems of the configuration, one line each."""


def read_secret(environment: Mapping[str, str], name: str) -> str:
    """Return NAME, else the stripped contents of the file named by NAME_FILE, else "". Raise SettingsError if
    unreadable.
    """
    value = environment.get(name, "")
    if value:
        return value
    path = environment.get(f"{name}_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except FileNotFoundError:
        raise SettingsError(f"{name}_FILE: cannot read {missing_file(Path(path))}") from None
    except OSError as error:
        raise SettingsError(f"{name}_FILE: cannot read {path}: {error.strerror}") from None


def stamp_files(environment: Mapping[str, str]) -> tuple[Hashable, ...]:
    """Return a value that changes when a file that a NAME_FILE names is written, replaced or removed.

    Kubernetes replaces a mounted secret by a new link, which `stat` follows.
    """
    return tuple(_stamp_file(path) for name, path in sorted(environment.items()) if name.endswith("_FILE"))


def _stamp_file(path: str) -> Hashable:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
