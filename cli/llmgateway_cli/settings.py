"""Settings of the client: flag over environment over configuration file over default.

The file is `config.json` in `~/.llmgateway` (or LLMGATEWAY_CONFIG_DIR), a flat JSON object of strings that the
published npm client reads and writes too.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from llmgateway_cli.errors import CliError
from llmgateway_cli.file_replacement import PRIVATE, replace_file

DEFAULT_URL = "http://127.0.0.1:4001"
FOLDER = ".llmgateway"
PRIVATE_FOLDER = 0o700
CONFIG_FILE = "config.json"
AGENTS_FILE = "agents.json"
LOOPBACK_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))

# Members of the file.
API_KEY = "apiKey"
DEFAULT_TEMPLATE = "defaultTemplate"
SESSION_COOKIE = "sessionCookie"
SESSION_TOKEN = "sessionToken"
SESSION_API_URL = "sessionApiUrl"
SESSION_EMAIL = "sessionEmail"
API_URL = "apiUrl"
DASHBOARD_URL = "dashboardUrl"
GATEWAY_URL = "gatewayUrl"
DEFAULT_ORGANIZATION = "defaultOrgId"
DEFAULT_PROJECT = "defaultProjectId"

# The environment variable and the flag of each base URL.
URL_VARIABLES = {
    API_URL: "LLMGATEWAY_API_URL",
    DASHBOARD_URL: "LLMGATEWAY_ORIGIN_URL",
    GATEWAY_URL: "LLMGATEWAY_GATEWAY_URL",
}
URL_FLAGS = {API_URL: "--api-url", DASHBOARD_URL: "--dashboard-url", GATEWAY_URL: "--gateway-url"}
KEY_VARIABLE = "LLMGATEWAY_API_KEY"
SERVICE_VARIABLE = "LLMGATEWAY_SERVICE_TOKEN"
FOLDER_VARIABLE = "LLMGATEWAY_CONFIG_DIR"
TIMEOUT_VARIABLE = "LLMGATEWAY_TIMEOUT"
TIMEOUT_S = 30.0


class Settings:
    """The client's settings; `flags` holds base URLs of the command line by their member of the file."""

    def __init__(self, environment: Mapping[str, str], flags: Mapping[str, str] | None = None) -> None:
        self.environment = environment
        self.flags = dict(flags or {})

    @cached_property
    def folder(self) -> Path:
        """The folder of the configuration."""
        named = self.environment.get(FOLDER_VARIABLE)
        if named:
            return Path(named).expanduser()
        return Path.home() / FOLDER

    @property
    def config_file(self) -> Path:
        return self.folder / CONFIG_FILE

    @property
    def agents_file(self) -> Path:
        """The file with the user's own coding agents."""
        return self.folder / AGENTS_FILE

    @cached_property
    def stored(self) -> dict[str, str]:
        """The members of the configuration file; empty without a file. Raises CliError if the file is damaged."""
        return read_config(self.config_file)

    def save(self, changes: Mapping[str, str | None]) -> None:
        """Set these members of the file and remove those that are None. Members of other clients stay."""
        merged = read_config(self.config_file)
        for name, value in changes.items():
            if value:
                merged[name] = value
            else:
                merged.pop(name, None)
        replace_file(self.config_file, json.dumps(merged, indent=2) + "\n", PRIVATE, PRIVATE_FOLDER)
        self.stored = merged

    @property
    def api_url(self) -> str:
        """The base of the management API."""
        return self.base_url(API_URL)

    @property
    def dashboard_url(self) -> str:
        """The base of the pages, and the origin that requests name."""
        return self.base_url(DASHBOARD_URL)

    @property
    def gateway_url(self) -> str:
        """The base of the inference API, without `/v1`."""
        return self.base_url(GATEWAY_URL)

    def base_url(self, member: str) -> str:
        """Return a base URL. Without an own setting it is that of the management API: a gateway serves all three."""
        value, source = self._named_url(member)
        if not value and member != API_URL:
            value, source = self._named_url(API_URL)
        return checked_url(value or DEFAULT_URL, source)

    def is_named(self, member: str) -> bool:
        """Return whether a flag, a variable or the file sets this base URL."""
        return bool(self._named_url(member)[0])

    def _named_url(self, member: str) -> tuple[str, str]:
        """Return the value and the place that sets it, both "" without one."""
        variable = URL_VARIABLES[member]
        if self.flags.get(member):
            return self.flags[member], URL_FLAGS[member]
        if self.environment.get(variable):
            return self.environment[variable], variable
        return self.stored.get(member, ""), f"{member} in {self.config_file}"

    @property
    def api_key(self) -> str:
        """The API key of the environment, else the stored one, else ""."""
        return self.environment.get(KEY_VARIABLE, "").strip() or self.stored.get(API_KEY, "")

    @property
    def api_key_source(self) -> str:
        """Where the API key comes from: "environment", "stored" or ""."""
        if self.environment.get(KEY_VARIABLE, "").strip():
            return "environment"
        if self.stored.get(API_KEY):
            return "stored"
        return ""

    @property
    def service_token(self) -> str:
        """The token of a service account in the environment, which replaces the stored session, else ""."""
        return self.environment.get(SERVICE_VARIABLE, "").strip()

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""
        named = self.environment.get(TIMEOUT_VARIABLE)
        if not named:
            return TIMEOUT_S
        if not (named.isascii() and named.isdigit()) or int(named) < 1:
            raise CliError(f"{TIMEOUT_VARIABLE}={named} is not a number of seconds.", "Set it to 1 or more.")
        return float(named)

    @property
    def default_project(self) -> str:
        return self.stored.get(DEFAULT_PROJECT, "")

    @property
    def default_organization(self) -> str:
        return self.stored.get(DEFAULT_ORGANIZATION, "")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message may contain. A damaged file has none that could be sent."""
        named = [self.environment.get(KEY_VARIABLE, "").strip(), self.service_token]
        with suppress(CliError):
            named += [self.stored.get(API_KEY, ""), self.stored.get(SESSION_TOKEN, "")]
            named.append(self.stored.get(SESSION_COOKIE, "").partition("=")[2])
        return tuple(value for value in named if value)


def checked_url(url: str, source: str) -> str:
    """Return a base URL without trailing slashes. Raises CliError unless it is https, or http on a loopback host."""
    remedy = "Use https://, or http:// on localhost, 127.0.0.1 or [::1], without user name, query and fragment."
    where = f" ({source})" if source else ""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError:
        raise CliError(f"A base URL cannot be read{where}.", remedy) from None
    if parts.username is not None or parts.password is not None:
        raise CliError(f"A base URL contains credentials{where}.", remedy)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise CliError(f"A base URL contains a query or a fragment{where}.", remedy)
    if not host or parts.scheme not in ("http", "https"):
        raise CliError(f"The base URL {url} is not an http(s) address{where}.", remedy)
    if parts.scheme == "http" and host not in LOOPBACK_HOSTS:
        raise CliError(f"The base URL {url} is not encrypted{where}.", remedy)
    return url.strip().rstrip("/")


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address, as browsers write an origin; "" for text that is no address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}".lower()


def read_config(path: Path) -> dict[str, str]:
    """Return the members of a configuration file; empty if there is none. Raises CliError if it is damaged."""
    remedy = f"Repair {path} or delete it, and sign in again."
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"The configuration file {path} cannot be read ({type(error).__name__}).", remedy) from None
    try:
        members = json.loads(text)
    except ValueError:
        raise CliError(f"The configuration file {path} is not valid JSON.", remedy) from None
    if not isinstance(members, dict):
        raise CliError(f"The configuration file {path} is not a JSON object.", remedy)
    for name, value in members.items():
        if not isinstance(value, str):
            raise CliError(f"The member {name!r} of the configuration file {path} is not a string.", remedy)
    return members
