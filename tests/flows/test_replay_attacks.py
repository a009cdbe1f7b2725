"""The console sends logged requests again: models that an address invents, and requests that name a person."""

from typing import Any
from urllib.parse import quote

import pytest
from flows.test_replays import EVERY, MESSAGES, RESPONSES, Owner
from support.gateways import LocalGateway

END_USER = "user-of-acme-17"
HI = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hi"}]}
# Requests that name a person or a session.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**HI, "user": END_USER, "metadata": {"session_id": "s-1", "feature": "help"}}),
    "messages": ("/v1/messages", {**MESSAGES, "metadata": {"user_id": END_USER}}),
    "responses": ("/v1/responses", {**RESPONSES, "safety_identifier": END_USER, "metadata": {"feature": "help"}}),
    "embeddings": ("/v1/embeddings", {"model": "sandbox-embed", "input": "one", "user": END_USER}),
}


@pytest.fixture
def owner(sandbox_gateway: LocalGateway) -> Owner:
    return Owner(sandbox_gateway)


@pytest.mark.parametrize("model", ["a\nb", "../../v1/files", "a?b#c"])
@pytest.mark.parametrize("name", ["gemini", "ai-sdk", "chat"])
def test_a_model_that_an_address_invents_is_refused_as_unknown(owner: Owner, name: str, model: str) -> None:
    ident = owner.send(name)
    page = owner.open(f"/logs/{ident}/replay?model={quote(model)}")
    assert "There is no model" in page and 'id="replay"' not in page


def test_a_model_in_the_path_is_encoded_for_the_browser(owner: Owner) -> None:
    ident = owner.send("gemini")
    page = owner.open(f"/logs/{ident}/replay?model=sandbox-echo")
    csrf = page.partition('data-csrf="')[2].partition('"')[0]
    path = f"{owner.gateway.address}/console/logs/{ident}/replay/body"
    made = owner.web.post(path, data={"csrf": csrf, "model": "sandbox/a?b#c é"}, timeout=60).json()
    assert made["path"] == "/v1beta/models/sandbox/a%3Fb%23c%20%C3%A9:generateContent"


@pytest.mark.parametrize("name", NAMED)
def test_a_request_that_is_sent_again_is_not_counted_for_the_end_user_of_the_first(owner: Owner, name: str) -> None:
    path, body = NAMED[name]
    first = owner.call(path, body, {})
    assert first.status_code == 200, first.text
    ident = first.headers["x-request-id"]
    assert END_USER in owner.open(f"/logs/{ident}")
    made = owner.body_of(ident, EVERY[name][1]["model"])
    again = owner.call(made["path"], made["body"], made["headers"])
    assert again.status_code == 200, again.text
    shown = owner.open(f"/logs/{again.headers['x-request-id']}")
    assert END_USER not in shown and "s-1" not in shown
    if name == "chat":
        assert not {"user", "metadata"} & owner.seed_of(ident)[0].keys()
