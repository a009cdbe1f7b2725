"""Pages of other origins: preflight requests, what they may read, and who is left out."""

from collections.abc import Callable

import httpx
import pytest
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway
from support.shared import Share

ORIGIN = "https://app.example.com"
BODY = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hi"}]}
ALLOW = "access-control-allow-origin"


@pytest.fixture(params=["express", "flask"])
def lane(request: pytest.FixtureRequest, share: Share, upstream: FakeOpenAI) -> Callable[..., LocalGateway]:
    """A factory of gateways with and without their express lane."""
    fixed = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": upstream.url}
    fixed["GATEWAY_SERVER_EXPRESS_LANE"] = str(request.param == "express")
    return lambda **environment: share.gateway(fixed | environment)


def send(gateway: LocalGateway, method: str, path: str, origin: str = ORIGIN, **more: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}", **({"Origin": origin} if origin else {})}
    headers |= more.pop("headers", {})
    with httpx.Client(timeout=20) as http:
        return http.request(method, gateway.address + path, headers=headers, **more)


def preflight(gateway: LocalGateway, path: str, origin: str = ORIGIN) -> httpx.Response:
    requested_headers = "authorization,content-type,x-stainless-lang,x-session-id"
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": requested_headers}
    with httpx.Client(timeout=60) as http:
        return http.options(gateway.address + path, headers={"Origin": origin, **headers})


def test_a_page_of_any_origin_may_call_and_read(lane: Callable[..., LocalGateway]) -> None:
    gateway = lane()
    for path in ("/v1/chat/completions", "/v1/models", "/chat/completions/", "/v1/nothing"):
        response = preflight(gateway, path)
        assert (response.status_code, response.headers[ALLOW]) == (204, "*")
        assert (
            response.headers["access-control-allow-headers"]
            == "authorization,content-type,x-stainless-lang,x-session-id"
        )
        assert "POST" in response.headers["access-control-allow-methods"]
        assert response.headers["x-request-id"] and "access-control-allow-credentials" not in response.headers
    for stream in (False, True):
        answer = send(gateway, "POST", "/v1/chat/completions", json=BODY | {"stream": stream})
        assert answer.status_code == 200 and answer.headers.get_list(ALLOW) == ["*"]
        assert answer.headers["access-control-expose-headers"] == "*"
    assert send(gateway, "GET", "/v1/models").headers[ALLOW] == "*"


def test_a_page_can_read_errors_too(lane: Callable[..., LocalGateway]) -> None:
    gateway = lane()
    refused = send(
        gateway, "POST", "/v1/chat/completions", json=BODY, headers={"Authorization": "Bearer llmgtwy_wrong"}
    )
    missing = send(gateway, "GET", "/v1/nothing")
    method = send(gateway, "GET", "/v1/chat/completions")
    assert [answer.status_code for answer in (refused, missing, method)] == [401, 404, 405]
    assert all(answer.headers[ALLOW] == "*" for answer in (refused, missing, method))


def test_routes_with_cookies_let_no_page_in(lane: Callable[..., LocalGateway]) -> None:
    gateway = lane()
    for path in ("/user/me", "/orgs", "/auth/get-session", "/console", "/"):
        for answer in (send(gateway, "GET", path), preflight(gateway, path)):
            assert not [name for name in answer.headers if name.startswith("access-control")], path


def test_a_request_that_comes_from_no_page_is_answered_as_ever(lane: Callable[..., LocalGateway]) -> None:
    answer = send(lane(), "POST", "/v1/chat/completions", origin="", json=BODY)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_setting_narrows_who_is_let_in(lane: Callable[..., LocalGateway]) -> None:
    gateway = lane(GATEWAY_SECURITY_CORS_ORIGINS=f"{ORIGIN},https://other.example")
    answer = send(gateway, "POST", "/v1/chat/completions", json=BODY)
    assert answer.headers[ALLOW] == ORIGIN and "Origin" in answer.headers.get_list("vary", split_commas=True)
    stranger = send(gateway, "POST", "/v1/chat/completions", origin="https://evil.example", json=BODY)
    assert ALLOW not in stranger.headers and "Origin" in stranger.headers.get_list("vary", split_commas=True)
    assert ALLOW not in preflight(gateway, "/v1/models", "https://evil.example").headers
    assert preflight(gateway, "/v1/models").headers[ALLOW] == ORIGIN
