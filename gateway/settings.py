"""Typed, frozen settings from config/*.toml and the environment; the only reader of the environment.

`load()` reads everything once and fails with the complete list of problems. Code receives the section it needs.
"""

import dataclasses
import os
import tomllib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

PACKAGE = Path(__file__).resolve().parent
# Where config/ and migrations/ are: inside of an installed package, beside the package in a checkout.
ROOT = PACKAGE if (PACKAGE / "config").is_dir() else PACKAGE.parent
CONFIG = ROOT / "config"


class SettingsError(Exception):
    """All that is wrong with the configuration, one line a problem."""


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: int
    workers: int
    public_url: str
    max_body_mb: int
    max_form_mb: int
    graceful_timeout_s: float
    keepalive_s: float
    express_lane: bool
    client_ip_header: str
    access_log: bool
    version: str
    head_timeout_s: float
    body_timeout_s: float
    answer_stall_s: float
    answer_least_rate: int
    body_least_rate: int
    bodies_mb: int
    organization_bodies_mb: int
    uploads_mb: int
    organization_uploads_mb: int
    address_connections: int
    shared_addresses: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    proxy_hops: int
    allowed_hosts: tuple[str, ...]
    hsts_s: int
    loop_lag_ms: int
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    url: str
    data_dir: str
    pool_size: int
    pool_wait_s: float

    @property
    def scheme(self) -> str:
        """The kind of store that `url` names: "sqlite" (also for ""), "postgresql", or what is not known."""
        named = self.url.partition("://")[0].partition("+")[0]
        return {"": "sqlite", "postgres": "postgresql"}.get(named, named)


@dataclass(frozen=True, slots=True)
class RedisSettings:
    url: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Timeouts:
    plain_s: float
    stream_s: float
    request_s: float
    connect_s: float
    silence_s: float
    heartbeat_s: float
    first_byte_s: float = 30.0
    first_byte_reasoning_s: float = 180.0

    @property
    def wake_s(self) -> float:
        """How often a silent stream is looked at."""
        return min(self.heartbeat_s, self.first_byte_s)


@dataclass(frozen=True, slots=True)
class Security:
    allow_private_upstreams: bool
    trusted_origins: tuple[str, ...]
    cors_origins: tuple[str, ...]
    allow_private_media: bool = False


@dataclass(frozen=True, slots=True)
class CatalogueSettings:
    path: str
    sandbox: bool
    auto_models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    max_attempts: int
    exploration_rate: float
    sticky_ttl_s: float
    low_uptime_percent: float
    decision_days: int


@dataclass(frozen=True, slots=True)
class Cache:
    max_bytes: int
    max_entry_bytes: int


@dataclass(frozen=True, slots=True)
class Responses:
    max_organization_mb: int
    max_conversation_mb: int


@dataclass(frozen=True, slots=True)
class Metering:
    drain_s: float
    log_days: int


@dataclass(frozen=True, slots=True)
class LimitSettings:
    default_max_output: int
    max_keys: int
    max_member_keys: int
    max_organizations: int
    max_projects: int
    max_custom_providers: int
    max_custom_models: int
    max_messages: int
    max_tools: int
    max_inputs: int
    max_schema_nodes: int
    max_enum: int
    max_json_nodes: int


@dataclass(frozen=True, slots=True)
class Bootstrap:
    email: str
    credits_usd: str


@dataclass(frozen=True, slots=True)
class MediaSettings:
    upload_dir: str
    mcp_url: str


@dataclass(frozen=True, slots=True)
class Log:
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["text", "json"]
    requests: Literal["off", "text", "json"] = "off"


@dataclass(frozen=True, slots=True)
class Metrics:
    port: int
    host: str


@dataclass(frozen=True, slots=True)
class Alerts:
    credits_low_usd: float
    model_end_days: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Every section, and `environment`: what credential look-ups (LLM_<ID>_API_KEY …) and secrets read."""

    environment_name: str
    server: Server
    database: DatabaseSettings
    redis: RedisSettings
    timeouts: Timeouts
    security: Security
    catalogue: CatalogueSettings
    routing: RoutingSettings
    cache: Cache
    responses: Responses
    metering: Metering
    limits: LimitSettings
    bootstrap: Bootstrap
    media: MediaSettings
    log: Log
    metrics: Metrics
    alerts: Alerts
    environment: Mapping[str, str] = field(repr=False)

    @property
    def spool_dir(self) -> str:
        """Where large uploads lie while they are worked on; nothing in it outlives its process."""
        return str(Path(self.database.data_dir) / "spool")

    def secret(self, name: str) -> str:
        """The secret NAME from the environment, or the contents of the file NAME_FILE; "" when unset."""
        return read_secret(self.environment, name)


SECTIONS: dict[str, type] = {
    f.name: f.type
    for f in dataclasses.fields(Settings)
    if isinstance(f.type, type) and dataclasses.is_dataclass(f.type)
}

# Names without our prefix: (section, key, factor applied to a number).
PLAIN_NAMES: dict[str, tuple[str, str, float]] = {
    "HOST": ("server", "host", 1),
    "PORT": ("server", "port", 1),
    "WEB_CONCURRENCY": ("server", "workers", 1),
    "MAX_REQUEST_BODY_MB": ("server", "max_body_mb", 1),
    "CLIENT_IP_HEADER": ("server", "client_ip_header", 1),
    "TRUSTED_PROXIES": ("server", "trusted_proxies", 1),
    "PROXY_HOPS": ("server", "proxy_hops", 1),
    "GATEWAY_ALLOWED_HOSTS": ("server", "allowed_hosts", 1),
    "APP_VERSION": ("server", "version", 1),
    "GRACEFUL_SHUTDOWN_TIMEOUT": ("server", "graceful_timeout_s", 1),
    "SHUTDOWN_GRACE_PERIOD_MS": ("server", "graceful_timeout_s", 0.001),
    "DATABASE_URL": ("database", "url", 1),
    "GATEWAY_DATA_DIR": ("database", "data_dir", 1),
    "REDIS_URL": ("redis", "url", 1),
    "STREAMING_TIMEOUT": ("timeouts", "stream_s", 1),
    "AI_STREAMING_TIMEOUT_MS": ("timeouts", "stream_s", 0.001),
    "AI_TIMEOUT_MS": ("timeouts", "plain_s", 0.001),
    "GATEWAY_TIMEOUT_MS": ("timeouts", "request_s", 0.001),
    "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": ("security", "allow_private_upstreams", 1),
    "GATEWAY_ALLOW_PRIVATE_MEDIA": ("security", "allow_private_media", 1),
    "GATEWAY_CATALOGUE_PATH": ("catalogue", "path", 1),
    "UPLOAD_DIR": ("media", "upload_dir", 1),
    "MCP_GATEWAY_URL": ("media", "mcp_url", 1),
}

# GATEWAY_ names that are read elsewhere as secrets or switches, so they never count as unknown.
KNOWN_OTHERS = {
    "GATEWAY_ENV",
    "GATEWAY_BOOTSTRAP_API_KEY",
    "GATEWAY_BOOTSTRAP_PASSWORD",
    "GATEWAY_API_KEY_HASH_SECRET",
    "GATEWAY_ENCRYPTION_KEY",
    "GATEWAY_METRICS_TOKEN",
}

TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


def read_secret(environment: Mapping[str, str], name: str) -> str:
    """NAME, else the stripped contents of the file named by NAME_FILE, else "". SettingsError if unreadable."""
    value = environment.get(name, "")
    if value:
        return value
    path = environment.get(f"{name}_FILE", "")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise SettingsError(f"{name}_FILE: cannot read {path}: {error.strerror}") from None


def load(environment: Mapping[str, str] | None = None, config: Path = CONFIG) -> Settings:
    """Settings from `config` and `environment` (default: the process's). SettingsError lists every problem."""
    env = dict(os.environ if environment is None else environment)
    name = env.get("GATEWAY_ENV", "development")
    problems: list[str] = []
    tree = _read_file(config / "default.toml", problems)
    special = config / f"{name}.toml"
    if special.exists():
        _overlay(tree, _read_file(special, problems))
    _apply_environment(tree, env, problems)
    sections = {key: _section(key, kind, tree.pop(key, {}), problems) for key, kind in SECTIONS.items()}
    problems.extend(f"unknown section [{key}]" for key in tree)
    if problems:
        raise SettingsError("\n".join(problems))
    return Settings(environment_name=name, environment=types.MappingProxyType(env), **sections)


def unknown_names(environment: Mapping[str, str]) -> list[str]:
    """GATEWAY_* names that mean nothing here; they only warn (platforms inject some)."""
    known = KNOWN_OTHERS | set(PLAIN_NAMES)
    known |= {f"GATEWAY_{s}_{f.name}".upper() for s, kind in SECTIONS.items() for f in dataclasses.fields(kind)}
    known |= {f"{k}_FILE" for k in known}
    return sorted(k for k in environment if k.startswith("GATEWAY_") and k not in known)


def _read_file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path.name}: {error}")
        return {}


def _overlay(tree: dict[str, Any], over: Mapping[str, Any]) -> None:
    for section, values in over.items():
        tree.setdefault(section, {}).update(values)


def _apply_environment(tree: dict[str, Any], env: Mapping[str, str], problems: list[str]) -> None:
    for section, kind in SECTIONS.items():
        for f in dataclasses.fields(kind):
            name = f"GATEWAY_{section}_{f.name}".upper()
            _set(tree, section, f.name, _from_environment(env, name, problems), 1)
    for name, (section, key, factor) in PLAIN_NAMES.items():
        _set(tree, section, key, _from_environment(env, name, problems), factor)


def _from_environment(env: Mapping[str, str], name: str, problems: list[str]) -> str:
    try:
        return read_secret(env, name)
    except SettingsError as error:
        problems.append(str(error))
        return ""


def _set(tree: dict[str, Any], section: str, key: str, text: str, factor: float) -> None:
    if text == "":
        return
    value: Any = text
    if factor != 1:
        try:
            value = float(text) * factor
        except ValueError:
            value = text
    tree.setdefault(section, {})[key] = value


def _section(name: str, kind: type, values: dict[str, Any], problems: list[str]) -> Any:
    fields = {f.name: f for f in dataclasses.fields(kind)}
    problems.extend(f"[{name}] unknown key {key}" for key in values if key not in fields)
    ready = {}
    for key, f in fields.items():
        if key not in values:
            problems.append(f"[{name}] {key} is missing")
            continue
        try:
            ready[key] = _convert(values[key], f.type)
        except ValueError as error:
            problems.append(f"[{name}] {key}: {error}")
    return kind(**ready) if len(ready) == len(fields) else None


def _convert(value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        items = [v.strip() for v in value.split(",") if v.strip()] if isinstance(value, str) else value
        return tuple(_convert(item, get_args(kind)[0]) for item in items)
    if get_origin(kind) is Literal:
        return _convert_choice(value, get_args(kind))
    if kind is bool:
        return _convert_bool(value)
    if kind in (int, float):
        if isinstance(value, bool):
            raise ValueError(f"expected a number, got {value!r}")
        number = kind(value)
        if number < 0:
            raise ValueError(f"must not be negative: {value!r}")
        return number
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _convert_choice(value: Any, choices: tuple[str, ...]) -> str:
    chosen = str(value).strip().lower()
    if chosen not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}")
    return chosen


def _convert_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError(f"expected true or false, got {value!r}")
