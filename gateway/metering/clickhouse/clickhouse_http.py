"""Statements over ClickHouse's HTTP interface (source: ClickHouse documentation, "HTTP Interface")."""

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote, urlencode, urlsplit

import orjson
from msgspec import Struct

from gateway.configuration.file import SettingsError
from gateway.configuration.setting_checks import url_problem
from gateway.configuration.settings import Analytics
from gateway.errors import GatewayError, Unavailable
from gateway.runtime.threads import compute_if
from gateway.transport.upstream_responses import Answer

NAME = "GATEWAY_ANALYTICS_CLICKHOUSE_URL"
INSERT_TIMEOUT_S = 60.0
QUERY_TIMEOUT_S = 30.0  # then the database answers a report
PING_TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 64 << 20
LARGE = 1 << 16  # bytes of an answer that is decoded in a thread
MAX_ERROR_LENGTH = 300  # characters of an error
# Errors must have a status: without this the answer may begin before the query fails.
SETTINGS = {"wait_end_of_query": "1", "output_format_json_quote_64bit_integers": "0"}


class StatementTransport(Protocol):
    """The part of the transport that is used."""

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float,
        max_bytes: int,
        trusted: bool,
    ) -> Answer: ...


class ClickHouseAddress(Struct, frozen=True):
    """Where ClickHouse is: `origin` without user and path, and the database."""

    origin: str
    user: str
    password: str
    database: str

    @property
    def shown(self) -> str:
        """The address without its password."""
        return f"{self.origin}/{self.database}"


def read_address(url: str) -> ClickHouseAddress:
    """Return the parts of http(s)://user:password@host:port/database. SettingsError, without the password."""
    try:
        parts = urlsplit(url)
        named = not url_problem(url, ("https", "http")) and not parts.query and not parts.fragment
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        named = False
        port = ""
    if not named:
        raise SettingsError(f"{NAME}: write http://user:password@host:8123/database")
    database = parts.path.strip("/") or "default"
    if not database.isidentifier() or not database.isascii():
        raise SettingsError(f"{NAME}: the name of the database may have letters, digits and _ only")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    user = unquote(parts.username or "")
    return ClickHouseAddress(f"{parts.scheme}://{host}{port}", user, unquote(parts.password or ""), database)


def check_address(chosen: Analytics) -> None:
    """SettingsError for an address or a table that cannot be one. Does not connect."""
    if chosen.clickhouse_url:
        read_address(chosen.clickhouse_url)
        _check_table(chosen.table)


def open_client(http: StatementTransport, url: str, table: str) -> "ClickHouse | None":
    """Return a client for the URL of the settings, None without one. SettingsError."""
    if not url:
        return None
    _check_table(table)
    return ClickHouse(http, read_address(url))


def _check_table(table: str) -> None:
    if not table.isidentifier() or not table.isascii():
        raise SettingsError("GATEWAY_ANALYTICS_TABLE: the name of a table may have letters, digits and _ only")


class ClickHouse:
    """A client for one database. Every method raises Unavailable when ClickHouse is down or refuses."""

    def __init__(self, http: StatementTransport, address: ClickHouseAddress) -> None:
        self._http = http
        self.address = address
        self._headers = {"content-type": "text/plain; charset=utf-8", "user-agent": "llmgateway"}
        if address.user:
            self._headers |= {"x-clickhouse-user": address.user, "x-clickhouse-key": address.password}

    def execute(self, sql: str) -> None:
        """Run a statement without a result."""
        self._post({}, sql.encode())

    def ping(self) -> None:
        """Check that ClickHouse answers within PING_TIMEOUT_S."""
        self._post({}, b"SELECT 1", PING_TIMEOUT_S)

    def insert(self, table: str, lines: bytes, token: str) -> None:
        """Insert rows of JSONEachRow. A repeated insert with the same `token` (not "") is ignored for as long as the
        table remembers it."""
        options = {"query": f"INSERT INTO {table} FORMAT JSONEachRow"}
        if token:
            options["insert_deduplication_token"] = token
        self._post(options, lines)

    def query(self, sql: str, **params: str) -> list[list[Any]]:
        """Return the rows of a query; `{name:Type}` in it stands for a parameter."""
        options = {f"param_{name}": _escape(value) for name, value in params.items()}
        body = self._post(options, f"{sql} FORMAT JSONCompactEachRow".encode(), QUERY_TIMEOUT_S)
        try:
            return compute_if(len(body) > LARGE, _read_rows, body)
        except ValueError:
            raise Unavailable("ClickHouse answered with text that has no rows.") from None

    def _post(self, options: Mapping[str, str], body: bytes, timeout_s: float = INSERT_TIMEOUT_S) -> bytes:
        url = f"{self.address.origin}/?{urlencode({'database': self.address.database, **SETTINGS, **options})}"
        try:
            answer = self._http.request(
                "POST", url, self._headers, body, timeout_s=timeout_s, max_bytes=MAX_ANSWER_BYTES, trusted=True
            )
        except GatewayError as error:
            raise Unavailable(f"ClickHouse does not answer: {error.message}") from error
        if answer.status != 200 or "x-clickhouse-exception-code" in answer.headers:
            text = answer.body[:MAX_ERROR_LENGTH].decode("utf-8", "replace").strip()
            raise Unavailable(f"ClickHouse refused a statement ({answer.status}): {text}")
        return answer.body


def _escape(value: str) -> str:
    """Return a parameter in the format TabSeparated, in which they are read."""
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _read_rows(body: bytes) -> list[list[Any]]:
    rows = [orjson.loads(line) for line in body.splitlines() if line]
    if not all(isinstance(row, list) for row in rows):
        raise ValueError("not a list")
    return rows
