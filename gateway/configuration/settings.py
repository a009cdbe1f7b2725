"""Typed, frozen settings from config/*.toml, gateway.toml and the environment; the only reader of the environment.

`load()` reads everything once and fails with the complete list of problems. Code receives the section that it needs.
"""

import dataclasses
import os
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from gateway.configuration.configured_providers import VARIABLE as IDENTITY_PROVIDERS
from gateway.configuration.configured_providers import ConfiguredProvider, SingleSignOn, load_providers
from gateway.configuration.file import ConfigFile, SettingsError, read_secret
from gateway.configuration.outgoing_settings import MAIL_PASSWORD, MailSettings, Outgoing
from gateway.configuration.setting_sources import CONFIG_NAME, ENVIRONMENT_NAME, SettingsReader, long_names
from gateway.configuration.value_parsing import HeaderName, NetworkText, NumberRange, Scheme
from gateway.secret_text import MASK

# The settings of the database.


DAY_S = 86_400
MAX_DAYS = 36_500  # times in microseconds that are this old still fit the columns of the database


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    url: str = field(repr=False)
    data_dir: str
    pool_size: Annotated[int, NumberRange(1)]
    pool_wait_s: Annotated[float, NumberRange(0, 600)]
    when_away: Literal["refuse", "serve"] = "refuse"
    away_s: Annotated[float, NumberRange(1, 86_400)] = 60.0
    away_usd: Annotated[float, NumberRange(0, 1_000_000)] = 20.0
    replica_url: str = field(default="", repr=False)
    replica_lag_s: Annotated[float, NumberRange(5, 86_400)] = 30.0

    @property
    def coast_s(self) -> float:
        """Return how long a worker serves without the database; 0 for not at all, as on SQLite."""
        if self.when_away == "serve" and self.scheme == "postgresql":
            return self.away_s
        return 0.0

    @property
    def scheme(self) -> str:
        """Return the kind of database in `url`: "sqlite" (also for ""), "postgresql", or an unknown scheme."""
        return scheme_of(self.url)


def scheme_of(url: str) -> str:
    """Return the kind of database at an address, as `DatabaseSettings.scheme`."""
    named = url.partition("://")[0].partition("+")[0]
    return {"": "sqlite", "postgres": "postgresql"}.get(named, named)


# The settings of usage rows: how long they are kept, and their delivery to ClickHouse.


@dataclass(frozen=True, slots=True)
class Metering:
    drain_s: Annotated[float, NumberRange(0, 3600)]
    log_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    usage_days: Annotated[int, NumberRange(0, MAX_DAYS)]


@dataclass(frozen=True, slots=True)
class Analytics:
    clickhouse_url: str = field(repr=False)
    table: str
    batch_rows: Annotated[int, NumberRange(100, 100_000)]
    backlog_days: Annotated[int, NumberRange(0, 400)]
    reports: Literal["database", "clickhouse"]


PACKAGE = Path(__file__).resolve().parent.parent
# The folder with config/ and migrations/: inside an installed package, beside the package in a checkout.
ROOT = PACKAGE if (PACKAGE / "config").is_dir() else PACKAGE.parent
CONFIG = ROOT / "config"
# The command line of the operator's tool: in a checkout, or of the installed package.
MANAGE = "./manage" if (ROOT / "manage").is_file() else "llmgateway-manage"


# Names of variables with values that no output contains, and the shortest value that is searched for.
SECRET_NAME = re.compile(r"(KEY|SECRET|TOKEN|PASSWORD|CREDENTIALS|URL)\Z")
MIN_SECRET_LENGTH = 6

ProjectMode = Literal["credits", "api-keys", "hybrid"]


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: Annotated[int, NumberRange(0, 65535)]
    workers: Annotated[int, NumberRange(1, 1024)]
    public_url: Annotated[str, Scheme(("https", "http"))] = field(repr=False)
    max_body_mb: int
    max_form_mb: int
    graceful_timeout_s: Annotated[float, NumberRange(0, DAY_S)]
    keepalive_s: Annotated[float, NumberRange(0, DAY_S)]
    early_blank_s: Annotated[float, NumberRange(0.1, 600, or_zero=True)]
    express_lane: bool
    client_ip_header: Annotated[str, HeaderName()]
    access_log: bool
    version: str
    head_timeout_s: Annotated[float, NumberRange(0.01, DAY_S)]
    body_timeout_s: Annotated[float, NumberRange(0.01, DAY_S)]
    answer_stall_s: Annotated[float, NumberRange(0.01, DAY_S)]
    answer_least_rate: int
    body_least_rate: int
    bodies_mb: int
    organization_bodies_mb: int
    answer_wait_s: Annotated[float, NumberRange(0, 3600)]
    uploads_mb: int
    organization_uploads_mb: int
    address_connections: int
    shared_addresses: tuple[Annotated[str, NetworkText()], ...]
    trusted_proxies: tuple[Annotated[str, NetworkText()], ...]
    proxy_hops: Annotated[int, NumberRange(1)]
    allowed_hosts: tuple[str, ...]
    hsts_s: Annotated[int, NumberRange(0, 100 * 366 * DAY_S)]
    loop_lag_ms: int
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedisSettings:
    url: str = field(repr=False)
    timeout_s: Annotated[float, NumberRange(0.01, 60)]


@dataclass(frozen=True, slots=True)
class Timeouts:
    plain_s: Annotated[float, NumberRange(0.01, DAY_S)]
    stream_s: Annotated[float, NumberRange(0.01, DAY_S)]
    request_s: Annotated[float, NumberRange(0.01, DAY_S)]
    connect_s: Annotated[float, NumberRange(0.01, DAY_S)]
    silence_s: Annotated[float, NumberRange(0.01, DAY_S)]
    heartbeat_s: Annotated[float, NumberRange(0.01, 10)]
    first_byte_s: Annotated[float, NumberRange(0.01, DAY_S)] = 12.0
    first_byte_reasoning_s: Annotated[float, NumberRange(0.01, DAY_S)] = 180.0

    @property
    def wake_s(self) -> float:
        """Return how often a silent stream is checked."""
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
    messages_models: tuple[str, ...]
    list_available: bool


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    max_attempts: Annotated[int, NumberRange(1)]
    exploration_rate: Annotated[float, NumberRange(0, 1)]
    sticky_ttl_s: Annotated[float, NumberRange(0, 366 * DAY_S)]
    low_uptime_percent: Annotated[float, NumberRange(0, 100)]
    decision_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    unpriced_tools: tuple[str, ...] = ()
    provider_objects: bool = False


@dataclass(frozen=True, slots=True)
class Cache:
    max_bytes: int
    max_entry_bytes: int


@dataclass(frozen=True, slots=True)
class Responses:
    max_organization_mb: int
    max_conversation_mb: int
    socket_s: Annotated[float, NumberRange(0, 366 * DAY_S)]
    organization_sockets: Annotated[int, NumberRange(0, 100_000)] = 500
    key_sockets: Annotated[int, NumberRange(0, 100_000)] = 50


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    audit_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    invitation_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    deleted_key_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    outcome_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    organization_payloads_mb: int
    erase_removed: bool


@dataclass(frozen=True, slots=True)
class LimitSettings:
    default_max_output: int
    max_keys: int
    max_member_keys: int
    max_organizations: int
    max_projects: int
    max_changes: int
    max_custom_providers: int
    max_custom_models: int
    max_messages: int
    max_tools: int
    max_inputs: int
    max_schema_nodes: int
    max_enum: int
    max_json_nodes: int
    max_json_containers: int


@dataclass(frozen=True, slots=True)
class OrganizationDefaults:
    project_mode: ProjectMode = "credits"
    caching: bool = False
    cache_ttl_s: Annotated[int, NumberRange(10, 31_536_000)] = 60
    retention: Literal["none", "retain"] = "none"
    retention_days: Annotated[int, NumberRange(1, 3650)] = 30
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bootstrap:
    email: str
    credits_usd: str


@dataclass(frozen=True, slots=True)
class MediaSettings:
    upload_dir: str
    image_model: str
    alt_image_model: str


@dataclass(frozen=True, slots=True)
class VideoSettings:
    job_timeout_s: Annotated[float, NumberRange(1, 7 * 86_400)]
    poll_s: Annotated[float, NumberRange(0.01, 3600)]
    keep_days: Annotated[int, NumberRange(1, 3650)]
    model: str


@dataclass(frozen=True, slots=True)
class FileSettings:
    folder: str
    s3_bucket_url: Annotated[str, Scheme(("https", "http"))]
    s3_region: str
    s3_prefix: str
    max_mb: Annotated[int, NumberRange(1, 65_536)]
    organization_mb: Annotated[int, NumberRange(0, 1 << 30)]
    keep_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    provider_uploads: bool


@dataclass(frozen=True, slots=True)
class BatchSettings:
    max_lines: Annotated[int, NumberRange(1, 1_000_000)]
    parallel_lines: Annotated[int, NumberRange(1, 256)]
    native: bool
    window_h: Annotated[float, NumberRange(0.01, 24 * 30)]
    keep_days: Annotated[int, NumberRange(1, MAX_DAYS)]


@dataclass(frozen=True, slots=True)
class McpSettings:
    gateway_url: Annotated[str, Scheme(("https", "http"))] = field(repr=False)
    tool_timeout_s: Annotated[float, NumberRange(1, 3600)]
    max_streams: Annotated[int, NumberRange(1, 10_000)]


@dataclass(frozen=True, slots=True)
class RealtimeSettings:
    inline: bool
    session_s: Annotated[float, NumberRange(1, 366 * DAY_S, or_zero=True)]
    idle_s: Annotated[float, NumberRange(0.1, 366 * DAY_S, or_zero=True)]
    session_usd: float
    organization_sessions: Annotated[int, NumberRange(0, 10_000)]
    key_sessions: Annotated[int, NumberRange(0, 10_000)]


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
class AlertSettings:
    credits_low_usd: float
    model_end_days: Annotated[int, NumberRange(0, MAX_DAYS)]
    thresholds: tuple[Annotated[int, NumberRange(1, 100)], ...]
    unusual_usd: Annotated[float, NumberRange(0)]
    cache_hits_percent: Annotated[int, NumberRange(0, 50)]


@dataclass(frozen=True, slots=True)
class Otel:
    endpoint: Annotated[str, Scheme(("https", "http"))] = field(repr=False)
    service_name: str
    sample: Annotated[float, NumberRange(0, 1)]
    metrics_every_s: Annotated[float, NumberRange(1, DAY_S)]
    agent_signals: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections, and `environment`: variables for secrets and credentials, completed by the operator's `file`."""

    environment_name: str
    server: Server
    database: DatabaseSettings
    redis: RedisSettings
    timeouts: Timeouts
    security: Security
    outgoing: Outgoing
    catalogue: CatalogueSettings
    routing: RoutingSettings
    cache: Cache
    responses: Responses
    metering: Metering
    analytics: Analytics
    retention: RetentionSettings
    limits: LimitSettings
    organizations: OrganizationDefaults
    bootstrap: Bootstrap
    media: MediaSettings
    video: VideoSettings
    files: FileSettings
    batches: BatchSettings
    mcp: McpSettings
    realtime: RealtimeSettings
    log: Log
    metrics: Metrics
    alerts: AlertSettings
    mail: MailSettings
    sso: SingleSignOn
    otel: Otel
    environment: Mapping[str, str] = field(repr=False)
    identity_providers: tuple[ConfiguredProvider, ...] = ()
    file: ConfigFile = field(default_factory=ConfigFile, metadata={"section": False})
    # (section, key) → source: "default", a file's name, a variable's name.
    origins: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)

    @property
    def spool_dir(self) -> str:
        """Return the folder of large uploads during their processing; its files do not outlive the process."""
        return str(Path(self.database.data_dir) / "spool")

    @property
    def files_dir(self) -> Path:
        """Return the folder of the contents of stored files."""
        return Path(self.files.folder or Path(self.database.data_dir) / "files")

    def secret(self, name: str) -> str:
        """Return the secret NAME from the environment, or the contents of the file NAME_FILE; "" if unset."""
        return read_secret(self.environment, name)


SECTIONS: dict[str, type] = {
    f.name: f.type
    for f in dataclasses.fields(Settings)
    if isinstance(f.type, type) and dataclasses.is_dataclass(f.type) and f.metadata.get("section", True)
}

# Names without the gateway's prefix: (section, key, factor applied to a number).
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
    # Other programs read the small names, curl even these alone for http; the large ones take precedence here.
    "https_proxy": ("outgoing", "https_proxy", 1),
    "http_proxy": ("outgoing", "http_proxy", 1),
    "no_proxy": ("outgoing", "no_proxy", 1),
    "HTTPS_PROXY": ("outgoing", "https_proxy", 1),
    "HTTP_PROXY": ("outgoing", "http_proxy", 1),
    "NO_PROXY": ("outgoing", "no_proxy", 1),
    "GATEWAY_CATALOGUE_PATH": ("catalogue", "path", 1),
    "UPLOAD_DIR": ("media", "upload_dir", 1),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("otel", "endpoint", 1),
    "OTEL_SERVICE_NAME": ("otel", "service_name", 1),
    "MCP_GATEWAY_URL": ("mcp", "gateway_url", 1),
    "REALTIME_INLINE": ("realtime", "inline", 1),
    "VIDEO_JOB_TIMEOUT_SECONDS": ("video", "job_timeout_s", 1),
}

FILES_S3_KEY = "GATEWAY_FILES_S3_KEY"
# Secrets, read on use with `Settings.secret`: key of [secrets] in gateway.toml → variable.
SECRETS = {
    "api_key_hash_secret": "GATEWAY_API_KEY_HASH_SECRET",
    "encryption_key": "GATEWAY_ENCRYPTION_KEY",
    "mail_password": MAIL_PASSWORD,
    "identity_providers": IDENTITY_PROVIDERS,
    "files_s3_key": FILES_S3_KEY,
    "metrics_token": "GATEWAY_METRICS_TOKEN",
    "bootstrap_api_key": "GATEWAY_BOOTSTRAP_API_KEY",
    "bootstrap_password": "GATEWAY_BOOTSTRAP_PASSWORD",
    "video_content_jwt_secret": "LLM_VIDEO_CONTENT_JWT_SECRET",
}
# Set by `serve` for its server if the database was unavailable: a worker must then run the migrations.
MIGRATE_LATE = "GATEWAY_MIGRATE_LATE"
KNOWN_OTHERS = {ENVIRONMENT_NAME, CONFIG_NAME, MIGRATE_LATE, *SECRETS.values()}
# Paths in gateway.toml that are relative to the folder of the file.
PATHS = {
    ("database", "data_dir"),
    ("catalogue", "path"),
    ("media", "upload_dir"),
    ("files", "folder"),
    ("outgoing", "ca_file"),
}


def choose_file(path: str) -> None:
    """Make `load` read this file, in this process and its children."""
    os.environ[CONFIG_NAME] = str(Path(path).absolute())


def inherited() -> dict[str, str]:
    """Return the environment of this process, for a process that replaces it."""
    return dict(os.environ)


def adopt(environment: Mapping[str, str]) -> None:
    """Make `load` read these variables too, in this process and its children, unless they are already set."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)


def load(environment: Mapping[str, str] | None = None, config: Path = CONFIG) -> Settings:
    """Load the settings from `config`, the operator's file and `environment`. SettingsError lists every problem."""
    chosen, problems = examine(environment, config)
    if chosen is None or problems:
        raise SettingsError("\n".join(problems))
    return chosen


def examine(environment: Mapping[str, str] | None = None, config: Path = CONFIG) -> tuple[Settings | None, list[str]]:
    """Return the settings, with defaults for invalid values (None without defaults), and every problem as a line."""
    env = dict(os.environ if environment is None else environment)
    reader = SettingsReader(SECTIONS, PLAIN_NAMES, SECRETS, PATHS, env, config)
    file, sections = reader.read(KNOWN_OTHERS)
    if None in sections.values():
        return None, reader.problems
    env = reader.with_secrets(file)
    identity_providers, problems = load_providers(env, file.identity_providers)
    reader.problems += problems
    chosen = Settings(
        environment_name=reader.environment_name,
        environment=types.MappingProxyType(env),
        identity_providers=identity_providers,
        file=file,
        origins=reader.origins,
        **sections,
    )
    return chosen, reader.problems


def hide_settings(text: str) -> str:
    """Return the text without the values of variables that hold secrets, or addresses that may."""
    for name, value in os.environ.items():
        if len(value) >= MIN_SECRET_LENGTH and SECRET_NAME.search(name):
            text = text.replace(value, MASK)
    return text


def known_keys() -> set[tuple[str, str]]:
    """Return (section, key) of every setting."""
    return set(long_names(SECTIONS).values())


def known_names() -> set[str]:
    """Return every variable that is a setting or a secret, without those of providers and without the forms in
    _FILE.
    """
    return {*KNOWN_OTHERS, *PLAIN_NAMES, *long_names(SECTIONS)}
