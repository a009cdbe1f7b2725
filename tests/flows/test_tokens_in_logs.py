"""A key at the wrong place of a request (model, id, header, path, query) is in no log line, stored row or error."""

import io
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.gateways import LocalGateway
from support.shared import Share

from gateway import ids
from gateway.secret_text import TOKEN_PREFIXES
from gateway.server.logging_setup import formatter_of
from gateway.telemetry.request_line import RequestLines

SEEN = 8  # characters after the prefix of a token that no output has
HEADERS = ("x-request-id", "x-llmgateway-team", "user-agent", "x-session-id")
PATHS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello"}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50},
    "/v1/responses": {"input": "Hello"},
    "/v1/embeddings": {"input": "Hello"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/images/generations": {"prompt": "a"},
    "/v1/audio/speech": {"input": "a", "voice": "alloy"},
}


@pytest.fixture
def gateway(share: Share) -> LocalGateway:
    return share.gateway({})


@pytest.fixture
def written(gateway: LocalGateway) -> Iterator[io.StringIO]:
    """Everything that is logged: request lines in both forms, and other lines."""
    stream = io.StringIO()
    lines = [RequestLines(form, stream.write) for form in ("text", "json")]
    for one in lines:
        gateway.services.telemetry.requests.observe(one)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter_of("text"))
    logging.getLogger("gateway").addHandler(handler)
    yield stream
    logging.getLogger("gateway").removeHandler(handler)
    gateway.services.telemetry.requests.observers[-2:] = []


def rows_of(gateway: LocalGateway) -> str:
    database = gateway.services.store.database
    names = database.read(database.peewee.get_tables)
    return "\n".join(str(database.read(lambda sql=f'SELECT * FROM "{name}"': database.fetch(sql))) for name in names)


@pytest.mark.parametrize("prefix", TOKEN_PREFIXES)
def test_a_token_at_the_wrong_place_is_in_no_log_row_or_error(
    gateway: LocalGateway, written: io.StringIO, prefix: str
) -> None:
    token = ids.token(prefix)
    shown = []
    with httpx.Client(base_url=gateway.address, headers={"Authorization": f"Bearer {gateway.key}"}) as http:

        def ask(method: str, path: str, **more: Any) -> None:
            answer = http.request(method, path, timeout=60, **more)
            shown.append(answer.text + str(answer.headers))

        for path, body in PATHS.items():
            ask("POST", path, json={**body, "model": token})
            ask("POST", path, json={**body, "model": f"openai/{token}"})
            headers = {name: f"a {token}" for name in HEADERS}
            ask("POST", path, json={**body, "model": "none"}, headers=headers)
            ask("POST", path, json={**body, "model": "none", "user": token, "metadata": {"a": token}})
            ask("POST", path, json={**body, "model": "none", token: 1})
        ask("POST", f"/v1beta/models/{token}:generateContent", json={"contents": []})
        for path in ("/v1/models/{}", "/v1/{}", "/v1/responses/{}", "/v1/videos/{}", "/v1beta//models/x?KEY={}", "/{}"):
            ask("GET", path.format(token))
        ask("GET", f"/v1/models?available={token}")
    gateway.services.store.journal.flush(30)
    for text in (*shown, written.getvalue(), rows_of(gateway)):
        at = text.find(token[: len(prefix) + SEEN])
        assert at < 0, text[max(0, at - 200) : at + 100]
    assert "request" in written.getvalue()
