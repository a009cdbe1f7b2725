"""The OpenID provider of the npm package oidc-provider: sign-in, checks, logout and people who were disabled."""

import html
import re
from typing import Any

import httpx
from support.gateways import LocalGateway
from support.identity_provider import Browser

from gateway.accounts import group_rules, members
from gateway.accounts.group_rules import RuleDraft
from gateway.accounts.identity_providers import ProviderDraft

SECRET = "a secret / with+signs"
OPTIONS = {
    "scopes": ["openid", "email", "profile", "offline_access"],
    "groups_claim": "groups",
    "role": "developer",
    "create_people": True,
}


def set_up(gateway: LocalGateway, provider: Any) -> str:
    """Configure the provider for the gateway's organization and return its id."""
    services = gateway.services
    draft = ProviderDraft("Published", provider.address, "gateway", SECRET, options=OPTIONS)
    created = services.sso.service.providers.create(gateway.organization_id, draft, actor="test").id
    services.sso.domains.claim(gateway.organization_id, created, "acme.example", verified=True, actor="test")
    provider.serve(
        f"{gateway.address}/console/sso/{created}/callback",
        f"{gateway.address}/oauth/back-channel-logout/{created}",
        f"{gateway.address}/console/login",
    )
    rule = RuleDraft("engineers", role="admin")
    group_rules.create_rule(
        services.store.database, services.store.control, gateway.organization_id, rule, actor="test"
    )
    return created


def sign_in(gateway: LocalGateway, provider_id: str, person: str) -> Browser:
    """Sign in on the pages of the provider: its form for the name, then its form for the consent."""
    browser = Browser(gateway.address)
    answer = browser.get(browser.to_provider(provider_id))
    for _ in range(12):
        if answer.is_redirect:
            answer = browser.web.get(str(answer.request.url.join(answer.headers["location"])))
        elif "<form" in answer.text:
            answer = submit(browser.web, answer, login=person, password="any")
        else:
            break
        if str(answer.request.url).startswith(f"{gateway.address}/console/sso/"):
            assert answer.status_code == 303, answer.text
            return browser
    raise AssertionError(answer.text)


def submit(web: httpx.Client, page: httpx.Response, **fields: str) -> httpx.Response:
    action = html.unescape(re.search(r'<form[^>]* action="([^"]+)"', page.text)[1])  # type: ignore[index]
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.text))
    return web.post(str(page.request.url.join(action)), data={**hidden, **fields})


def check(gateway: LocalGateway) -> None:
    database = gateway.services.store.database
    database.write(lambda: database.execute("UPDATE sso_login SET check_at = 1"))
    gateway.services.sso.checks.run(lambda: True)


def test_people_sign_in_are_checked_and_lose_access_when_they_are_disabled(
    gateway: LocalGateway, published_provider: Any
) -> None:
    provider_id = set_up(gateway, published_provider)
    browser = sign_in(gateway, provider_id, "alice")
    me = browser.me()
    assert me is not None and me["user"]["email"] == "alice@acme.example"
    assert [membership["role"] for membership in me["memberships"]] == ["admin"]
    for _ in range(3):  # the refresh token rotates
        check(gateway)
        assert browser.me() is not None
    httpx.post(f"{published_provider.address}/control/disable/alice", timeout=60)
    check(gateway)
    assert browser.me() is None


def test_a_logout_at_the_provider_ends_the_sessions_of_the_gateway(
    gateway: LocalGateway, published_provider: Any
) -> None:
    provider_id = set_up(gateway, published_provider)
    alice = sign_in(gateway, provider_id, "alice")
    bob = sign_in(gateway, provider_id, "bob")
    page = alice.web.get(f"{published_provider.address}/session/end")
    done = submit(alice.web, page, logout="yes")
    assert done.status_code < 400, done.text
    assert alice.me() is None and bob.me() is not None
    names = {member.email for member in members.list_members(gateway.services.store.database, gateway.organization_id)}
    assert {"alice@acme.example", "bob@acme.example"} <= names


def test_sign_out_at_the_gateway_ends_the_session_at_the_provider(
    gateway: LocalGateway, published_provider: Any
) -> None:
    provider_id = set_up(gateway, published_provider)
    alice = sign_in(gateway, provider_id, "alice")
    csrf = alice.get("/console/account").text.split('/console/logout"')[1].split('name="csrf" value="')[1].split('"')[0]
    signed_out = alice.post("/console/logout", csrf=csrf)
    page = alice.get(signed_out.headers["refresh"].partition("url=")[2])
    done = submit(alice.web, page, logout="yes")
    assert done.headers["location"] == f"{gateway.address}/console/login"
    silent = alice.get(alice.to_provider(provider_id, "?silent=1"))
    assert "error=login_required" in silent.headers["location"]
