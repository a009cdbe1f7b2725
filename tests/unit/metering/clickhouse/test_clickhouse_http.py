"""Statements to ClickHouse: how they are sent, and what their failures say."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.configuration.settings import SettingsError
from gateway.errors import Unavailable, UpstreamFailed
from gateway.metering.clickhouse.clickhouse_http import ClickHouse, open_client, read_address
from gateway.transport.upstream_responses import Answer

URL = "https://gateway:p%40ss@[::1]:8443/statistics"


class FakeTransport:
    """Records requests and gives the next of `answers`."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, str], bytes]] = []

    def request(self, method: str, url: str, headers: Any, body: bytes, **_: Any) -> Answer:
        assert method == "POST"
        self.calls.append((url, dict(headers), body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def options(self, number: int) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.calls[number][0]).query).items()}


def ok(body: bytes = b"") -> Answer:
    return Answer(200, {}, body)


def test_user_and_password_are_headers_and_never_in_an_address() -> None:
    http = FakeTransport(ok())
    client = ClickHouse(http, read_address(URL))
    client.execute("SELECT 1")
    url, headers, body = http.calls[0]
    assert url.startswith("https://[::1]:8443/?") and "ss" not in url.partition("?")[0] and body == b"SELECT 1"
    assert (headers["x-clickhouse-user"], headers["x-clickhouse-key"]) == ("gateway", "p@ss")
    assert http.options(0)["database"] == "statistics" and http.options(0)["wait_end_of_query"] == "1"
    assert client.address.shown == "https://[::1]:8443/statistics"


def test_an_insert_carries_its_rows_and_its_token() -> None:
    http = FakeTransport(ok(), ok())
    client = ClickHouse(http, read_address("http://localhost"))
    client.insert("usage", b'{"a":1}', "token")
    client.insert("usage", b'{"a":1}', "")
    assert http.options(0)["query"] == "INSERT INTO usage FORMAT JSONEachRow"
    assert http.options(0)["insert_deduplication_token"] == "token" and http.calls[0][2] == b'{"a":1}'
    assert "insert_deduplication_token" not in http.options(1) and http.options(1)["database"] == "default"


def test_parameters_of_a_query_are_sent_apart_and_escaped() -> None:
    http = FakeTransport(ok(b'["a",1]\n["b","170141183460469231731687303715884105727"]\n'))
    client = ClickHouse(http, read_address("http://localhost:8123/"))
    rows = client.query("SELECT {tag:String}", tag="a'b\\\t\n")
    assert rows == [["a", 1], ["b", str(2**127 - 1)]]
    assert http.options(0)["param_tag"] == "a'b\\\\\\t\\n"
    assert http.calls[0][2] == b"SELECT {tag:String} FORMAT JSONCompactEachRow"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (UpstreamFailed("connection refused"), "does not answer: connection refused"),
        (Answer(404, {}, b"Code: 60. DB::Exception: Unknown table"), "(404): Code: 60"),
        (Answer(200, {"x-clickhouse-exception-code": "241"}, b"Code: 241. Memory limit"), "Code: 241"),
    ],
)
def test_every_failure_is_unavailable_with_its_reason(answer: Any, text: str) -> None:
    client = ClickHouse(FakeTransport(answer), read_address(URL))
    with pytest.raises(Unavailable) as caught:
        client.execute("SELECT 1")
    assert caught.value.message.startswith("ClickHouse") and text in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "clickhouse://secret@host",
        "http://",
        "http://user:secret@host/a/b",
        "http://user:secret@host/data?x=1",
        "http://user:secret@host:port/data",
        "http://user:secret@host/da-ta",
    ],
)
def test_an_invalid_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match="GATEWAY_ANALYTICS_CLICKHOUSE_URL") as caught:
        open_client(FakeTransport(), url, "usage")
    assert "secret" not in str(caught.value)


def test_a_name_of_a_table_is_a_plain_name() -> None:
    assert open_client(FakeTransport(), "", "usage; DROP") is None
    with pytest.raises(SettingsError, match="GATEWAY_ANALYTICS_TABLE"):
        open_client(FakeTransport(), URL, "usage; DROP")


@pytest.mark.parametrize("body", [b"<html>A proxy</html>", b"[1]\n[2", b'{"rows": []}', b"[1]\n5", b"\xff"])
def test_an_answer_without_rows_counts_as_an_outage(body: bytes) -> None:
    client = ClickHouse(FakeTransport(ok(body)), read_address(URL))
    with pytest.raises(Unavailable):
        client.query("SELECT 1")
