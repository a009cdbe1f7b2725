"""Merging of all sources of settings: the files of config/, the operator's file, and the environment, in rising
priority.
"""

import dataclasses
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from gateway.configuration import file as config_file
from gateway.configuration.file import ConfigFile, SettingsError, TomlPlace, read_secret
from gateway.configuration.setting_checks import suggest_similar, unknown_variables
from gateway.configuration.value_parsing import convert

DEFAULTS = "default.toml"
NO_ENVIRONMENTS = (
    *(DEFAULTS, "checkers.toml", "detectors.toml"),
    *("agent_outcomes.toml", "gateway.example.toml", "genai_names.toml", "invoices.toml"),
)
ENVIRONMENT_NAME = "GATEWAY_ENV"
CONFIG_NAME = "GATEWAY_CONFIG"
DEFAULT_ENVIRONMENT = "development"
DEFAULT = "default"

Key = tuple[str, str]


def long_names(sections: Mapping[str, type]) -> dict[str, Key]:
    """Return GATEWAY_<SECTION>_<KEY> → (section, key) for every setting."""
    return {
        f"GATEWAY_{section}_{field.name}".upper(): (section, field.name)
        for section, kind in sections.items()
        for field in dataclasses.fields(kind)
    }


@lru_cache(maxsize=4)  # a process reads the files of config/ several times, and parsing takes most of that
def _parse(text: str) -> dict[str, Any]:
    """Return the content of a TOML file, which no caller changes."""
    return tomllib.loads(text)


class SettingsReader:
    """Reads all sources of settings.

    `sections` are dataclasses by name, `plain_names` further variables with the factor that converts their numbers,
    `secrets` the variables of the file's [secrets], `paths` the settings that are paths. `origins` holds the source of
    each key: "default", a file's name or a variable's name. `problems` has a line for each problem; an invalid value
    is replaced by its default so that all other problems are found too.
    """

    def __init__(
        self,
        sections: Mapping[str, type],
        plain_names: Mapping[str, tuple[str, str, float]],
        secrets: Mapping[str, str],
        paths: Collection[Key],
        environment: Mapping[str, str],
        config: Path,
    ) -> None:
        self._sections = sections
        self._plain_names = plain_names
        self._secrets = secrets
        self._paths = paths
        self._environment = environment
        self._config = config
        self._tree: dict[str, Any] = {}
        self._usual: dict[str, Any] = {}
        self.problems: list[str] = []
        self.environment_name = environment.get(ENVIRONMENT_NAME) or DEFAULT_ENVIRONMENT
        self.origins: dict[Key, str] = {}

    def read(self, others: Collection[str]) -> tuple[ConfigFile, dict[str, Any]]:
        """Return the operator's file and a filled dataclass for each section (None if the defaults are incomplete).

        `others` are variables with the gateway's prefix that are not settings.
        """
        self._usual = self._load(self._config / DEFAULTS)
        self._merge(self._usual, DEFAULT)
        self._merge_special()
        file = self._read_operators()
        self._merge(self._placed(file), config_file.NAME)
        names = long_names(self._sections)
        self._take_variables({name: (*key, 1.0) for name, key in names.items()} | dict(self._plain_names))
        known = {*others, *names, *self._plain_names, *file.variables}
        self.problems += unknown_variables(self._environment, "GATEWAY_", known)
        filled = {name: self._fill(name, kind, self._tree.pop(name, {}), file) for name, kind in self._sections.items()}
        self.problems += [f"unknown section [{name}]" for name in self._tree]
        return file, filled

    def with_secrets(self, file: ConfigFile) -> dict[str, str]:
        """Return the environment, with the file's entries as fallback."""
        env = self._environment
        given = {
            name: value
            for name, value in file.environment.items()
            # NAME_FILE of the environment takes precedence over NAME of the file, although NAME is looked up first.
            if not any(env.get(f"{name.removesuffix('_FILE')}{end}") for end in ("", "_FILE"))
        }
        return {**env, **given}

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            return _parse(path.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self.problems.append(f"{path.name}: {error}")
            return {}

    def _merge(self, over: Mapping[str, Any], origin: str) -> None:
        for section, values in over.items():
            self._tree.setdefault(section, {}).update(values)
            self.origins.update({(section, key): origin for key in values})

    def _merge_special(self) -> None:
        name = self.environment_name
        known = sorted(path.stem for path in self._config.glob("*.toml") if path.name not in NO_ENVIRONMENTS)
        if name in known:
            self._merge(self._load(self._config / f"{name}.toml"), f"{name}.toml")
        elif known:
            problem = f"{ENVIRONMENT_NAME}: there is no {name!r}, only {', '.join(known)}{suggest_similar(name, known)}"
            self.problems.append(problem)

    def _read_operators(self) -> ConfigFile:
        """Read the named file, else the one in the data folder, if it exists."""
        env = self._environment
        usual = self._tree.get("database", {}).get("data_dir", "")
        named = env.get(CONFIG_NAME, "")
        data = env.get("GATEWAY_DATA_DIR") or env.get("GATEWAY_DATABASE_DATA_DIR") or usual
        path = Path(named or Path(data) / config_file.NAME)
        if not named and not path.is_file():
            return ConfigFile()
        sections = {name: [field.name for field in dataclasses.fields(kind)] for name, kind in self._sections.items()}
        return config_file.read(path.absolute(), env, sections, self._secrets, self.problems)

    def _placed(self, file: ConfigFile) -> dict[str, dict[str, Any]]:
        """Return the sections of the file, with paths relative to its folder."""
        folder = Path(file.path).parent
        return {
            section: {
                key: str(folder / value)
                if (section, key) in self._paths and value and isinstance(value, str)
                else value
                for key, value in values.items()
            }
            for section, values in file.sections.items()
        }

    def _take_variables(self, names: Mapping[str, tuple[str, str, float]]) -> None:
        for name, (section, key, factor) in names.items():
            try:
                text = read_secret(self._environment, name)
            except SettingsError as error:
                self.problems.append(str(error))
                continue
            if text:
                self._tree.setdefault(section, {})[key] = _scaled(text, factor)
                if self._environment.get(name):
                    self.origins[section, key] = name
                else:
                    self.origins[section, key] = f"{name}_FILE"

    def _fill(self, name: str, kind: type, values: dict[str, Any], file: ConfigFile) -> Any:
        fields = {field.name: field for field in dataclasses.fields(kind)}
        self.problems += [
            f"[{name}] unknown key {key}{suggest_similar(key, fields)}" for key in values if key not in fields
        ]
        ready = {}
        for key, field in fields.items():
            if key not in values:
                self.problems.append(f"[{name}] {key} is missing")
                continue
            try:
                ready[key] = convert(values[key], field.type)
            except ValueError as error:
                self.problems.append(f"[{name}] {key}: {error}{describe_origin(self.origins, file, name, key)}")
                with suppress(ValueError, KeyError):
                    ready[key] = convert(self._usual[name][key], field.type)
        if len(ready) == len(fields):
            return kind(**ready)
        return None


def describe_origin(origins: Mapping[Key, str], file: ConfigFile, section: str, key: str) -> str:
    """Return the source of an invalid value for its message, with the line of the file; "" for a default."""
    origin = origins.get((section, key), DEFAULT)
    if origin == config_file.NAME:
        origin = TomlPlace(Path(file.path).name, "", file.lines, section).at(key)
    if origin == DEFAULT:
        return ""
    return f" (from {origin})"


def _scaled(text: str, factor: float) -> Any:
    try:
        if factor == 1:
            return text
        return float(text if text.isascii() else "") * factor
    except ValueError:
        return text
