"""The first run: a link of the terminal signs in once, from this machine only, and three steps lead to an answer."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from support.management import Tenants

from gateway.admin.sign_in import LINK_LIFETIME_S, is_loopback, make_link_token
from gateway.errors import Forbidden, Gone, NotFound
from gateway.operator import start

OWN = {"Origin": "http://localhost"}
BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


def make_token(tenants: Tenants, email: str = "owner@acme.example") -> str:
    store = tenants.services.store
    return make_link_token(store.database, store.secrets.hash_keys[0], email)


def test_a_link_signs_in_once_and_leads_to_the_first_answer(open_tenants) -> None:
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "first")
        browser = tenants.gateway.app.flask.test_client()
        token = make_token(tenants)
        opened = browser.get(f"/console/welcome?token={token}")
        assert opened.status_code == 303 and token not in opened.headers["Location"]
        assert opened.headers["Referrer-Policy"] == "no-referrer"
        assert "owner@acme.example" in browser.get("/console/welcome").text
        # Neither opening the page nor a form of another site uses the link up.
        assert browser.post("/console/welcome", headers={"Origin": "https://evil.example"}).status_code == 403
        signed_in = browser.post("/console/welcome", headers=OWN, data={"action": "go"})
        assert signed_in.headers["Location"].endswith("/console/start")
        assert browser.get_cookie("llmgateway.welcome") is None
        start = browser.get("/console/start").text
        assert "Waiting for your first request" in start and 'hx-trigger="every 2s"' in start
        csrf = re.findall(r'name="csrf" value="([^"]*)"', start)[0]
        made = browser.post("/console/start", headers=OWN, data={"csrf": csrf, "action": "create", "tool": "curl"}).text
        key = re.findall(r'<pre id="token">(llmgtwy_[^<]*)</pre>', made)[0]
        assert f"Bearer {key}" in made
        assert ">curl<" in browser.get("/console/keys").text
        tenants.ok("POST", "/v1/chat/completions", key, BODY)
        tenants.services.store.journal.flush(60)
        answered = browser.get("/console/start").text
        assert "sandbox/sandbox-echo answered with status 200" in answered and "every 2s" not in answered
        again = tenants.gateway.app.flask.test_client()
        again.get(f"/console/welcome?token={token}")
        assert again.post("/console/welcome", headers=OWN, data={"action": "go"}).status_code == 410


def test_a_person_who_came_by_a_link_sets_the_first_password(open_tenants) -> None:
    with open_tenants() as tenants:
        browser = tenants.gateway.app.flask.test_client()
        browser.get(f"/console/welcome?token={make_token(tenants)}")
        browser.post("/console/welcome", headers=OWN, data={"action": "go"})
        page = browser.get("/console/account").text
        assert "Set password" in page and "Current password" not in page
        assert "password was changed" in change_password(browser, "a first password")
        page = browser.get("/console/account").text
        assert "Set password" not in page and "Current password" in page
        assert "password was changed" not in change_password(browser, "another password")
        changed = change_password(browser, "another password", current="a first password")
        assert "password was changed" in changed


def change_password(browser: Any, chosen: str, **fields: str) -> str:
    csrf = re.findall(r'name="csrf" value="([^"]*)"', browser.get("/console/account").text.partition("<main")[2])[-1]
    data = {"csrf": csrf, "action": "change", "chosen": chosen, **fields}
    return browser.post("/console/account", headers=OWN, data=data).text


@pytest.mark.parametrize("peer", ["192.0.2.7", "10.0.0.1", "", "unix"])
def test_a_link_works_on_this_machine_only(shared_tenants: Tenants, peer: str) -> None:
    links = shared_tenants.services.management.sign_in_links
    with pytest.raises(Forbidden):
        links.redeem(make_token(shared_tenants), peer, "")
    assert not is_loopback(peer) and is_loopback("::1")


def test_a_changed_or_expired_link_is_refused(shared_tenants: Tenants, monkeypatch) -> None:
    links = shared_tenants.services.management.sign_in_links
    token = make_token(shared_tenants)
    other = shared_tenants["acme admin"].user_id
    for changed in (token[:-1], f"{other}.{token.partition('.')[2]}", "", "a.b", "...", f"{token}.x"):
        with pytest.raises(NotFound):
            links.find(changed, "127.0.0.1")
    database = shared_tenants.services.store.database
    later = database.now_us() + LINK_LIFETIME_S * 1_000_000
    monkeypatch.setattr(type(database), "now_us", lambda self: later)
    with pytest.raises(Gone):
        links.find(token, "127.0.0.1")


def test_unknown_people_get_no_link_and_a_second_factor_stays_required(shared_tenants: Tenants, monkeypatch) -> None:
    assert make_token(shared_tenants, "nobody@acme.example") == ""
    management = shared_tenants.services.management
    token = make_token(shared_tenants)
    status = management.second_factors.find("user_x")
    active = type(status)(**{**{name: getattr(status, name) for name in status.__slots__}, "active": True})
    monkeypatch.setattr(management.second_factors, "find", lambda user_id: active)
    with pytest.raises(Forbidden, match="second factor"):
        management.sign_in_links.find(token, "127.0.0.1")


def test_only_a_terminal_of_this_machine_shows_a_link(shared_tenants: Tenants, monkeypatch) -> None:
    store = shared_tenants.services.store
    installation = SimpleNamespace(database=store.database, secrets=store.secrets)
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("gateway.operator.start.sys", SimpleNamespace(stdout=terminal))
    local = "http://127.0.0.1:4001"
    link = start.make_link(installation, local, "owner@acme.example")  # type: ignore[arg-type]
    assert link.startswith(f"{local}/console/welcome?token=user_")
    assert start.make_link(installation, "https://llm.example.com", "owner@acme.example") == ""  # type: ignore[arg-type]
    terminal.isatty = lambda: False
    assert start.make_link(installation, local, "owner@acme.example") == ""  # type: ignore[arg-type]
