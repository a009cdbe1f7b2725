"""Invitations and lost passwords by e-mail, through the whole gateway and a mail server."""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from fakes.smtp import Delivery, FakeSmtp
from support.gateways import LocalGateway

from gateway.accounts import audit, mail_queue
from gateway.transport.mail import Mail

BASE = "http://localhost"
OWN = {"Origin": BASE}
EMAIL, PASSWORD = "owner@localhost", "a new password that is long"
LINK = re.compile(rf"{BASE}(/console/\S+)")


@pytest.fixture
def server() -> Iterator[FakeSmtp]:
    with FakeSmtp(mode="none") as running:
        yield running


@pytest.fixture
def gateway(make_tenants: Callable[..., Any], server: FakeSmtp) -> Iterator[LocalGateway]:
    settings = {
        "GATEWAY_MAIL_HOST": "127.0.0.1",
        "GATEWAY_MAIL_PORT": str(server.port),
        "GATEWAY_MAIL_SECURITY": "none",
        "GATEWAY_MAIL_SENDER": "gw@example.com",
        "GATEWAY_SERVER_PUBLIC_URL": BASE,
    }
    with make_tenants(**settings) as running:
        yield running


@pytest.fixture
def browser(gateway: LocalGateway) -> Any:
    return gateway.app.flask.test_client()


def ask(browser: Any, email: str, **headers: str) -> Any:
    return browser.post("/console/forgot", data={"email": email}, headers={**OWN, **headers})


def deliver(gateway: LocalGateway, server: FakeSmtp) -> list[Delivery]:
    """Return the delivered e-mails once the background work of the request is done."""
    for _ in range(5):
        gevent.sleep(0.05)
        gateway.services.telemetry.mail.deliver()
    return server.deliveries


def link_of(delivery: Delivery) -> str:
    found = LINK.search(delivery.text)
    assert found is not None
    return found[1]


def open_link(browser: Any, link: str) -> Any:
    first = browser.get(link)
    return browser.get(first.headers["Location"].removeprefix(BASE)) if first.status_code == 303 else first


def choose(browser: Any, password: str = PASSWORD) -> Any:
    return browser.post("/console/reset", data={"password": password}, headers=OWN)


def sign_in(browser: Any, password: str) -> int:
    return browser.post("/auth/sign-in/email", json={"email": EMAIL, "password": password}).status_code


def test_a_link_sets_a_password_once_and_ends_all_sessions(gateway, server, browser) -> None:
    token = browser.post("/auth/sign-in/email", json={"email": EMAIL, "password": "correct horse battery"}).json[
        "token"
    ]
    assert ask(browser, EMAIL).status_code == 200
    [letter] = deliver(gateway, server)
    assert letter.recipients == [EMAIL]
    link = link_of(letter)
    assert browser.get(link).headers["Referrer-Policy"] == "no-referrer"
    assert open_link(browser, link).status_code == 200
    assert "12" in choose(browser, "short").text, "the form is shown again"
    assert "was changed" in choose(browser).text
    assert sign_in(browser, PASSWORD) == 200 and sign_in(browser, "correct horse battery") == 401
    assert browser.get("/user/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    assert open_link(browser, link).status_code == 410


def test_a_link_expires(gateway, server, browser, monkeypatch) -> None:
    ask(browser, EMAIL)
    [letter] = deliver(gateway, server)
    database = gateway.services.store.database
    now = database.now_us()
    monkeypatch.setattr(database, "now_us", lambda: now + 3601 * 1_000_000)
    assert open_link(browser, link_of(letter)).status_code == 410


def test_a_changed_link_opens_nothing(gateway, server, browser) -> None:
    ask(browser, EMAIL)
    [letter] = deliver(gateway, server)
    user, ends, mac = link_of(letter).partition("token=")[2].split(".")
    other_user = user[:-1] + ("1" if user.endswith("0") else "0")
    for token in (f"{user}.{int(ends) + 1}.{mac}", f"{user}.{ends}.{mac[::-1]}", f"{other_user}.{ends}.{mac}", "x"):
        assert open_link(browser, f"/console/reset?token={token}").status_code in (404, 410)


def test_the_answer_is_the_same_for_an_address_that_has_no_account(gateway, server, browser) -> None:
    known, unknown = ask(browser, EMAIL), ask(browser, "nobody@example.com")
    assert (known.status_code, known.text) == (unknown.status_code, unknown.text)
    assert len(deliver(gateway, server)) == 1


def test_asking_is_limited_for_an_address_whether_it_has_an_account_or_not(gateway, browser) -> None:
    for email in (EMAIL, "nobody@example.com"):
        assert [ask(browser, email).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_a_link_never_leads_to_the_host_that_the_request_names(gateway, server, browser) -> None:
    ask(browser, EMAIL, Host="evil.example", Origin="http://evil.example")
    ask(browser, EMAIL)
    assert all("evil.example" not in letter.text for letter in deliver(gateway, server))


def test_a_message_waits_encrypted_is_tried_again_and_nothing_of_it_is_logged(
    gateway, server, browser, caplog, monkeypatch
) -> None:
    caplog.set_level(logging.DEBUG)
    server.refusals = ["451 later"]
    ask(browser, EMAIL)
    assert deliver(gateway, server) == []
    store = gateway.services.store
    [(_, waiting)] = store.documents.entries("mail")
    assert b"reset" not in waiting and EMAIL.encode() not in waiting and b'"attempts":1' in waiting
    clock = gateway.services.telemetry.mail._clock
    now = clock.now_us()
    monkeypatch.setattr(clock, "now_us", lambda: now + 60 * 1_000_000)
    [letter] = deliver(gateway, server)
    assert store.documents.entries("mail") == []
    assert "token=" not in caplog.text and link_of(letter).partition("token=")[2] not in caplog.text


def test_messages_that_wait_keep_no_other_from_being_sent(gateway, server, browser, monkeypatch) -> None:
    monkeypatch.setattr(mail_queue, "BATCH_SIZE", 4)
    server.refusals = ["451 later"] * 4
    for number in range(4):
        gateway.services.telemetry.mail.put(Mail(f"slow{number}@example.com", "Invitation", "Open this link."))
    assert deliver(gateway, server) == []
    ask(browser, EMAIL)
    assert len(deliver(gateway, server)) == 1
    assert len(gateway.services.store.documents.entries("mail")) == 4


def test_an_invitation_is_sent_to_the_address(gateway, server, browser) -> None:
    answer = browser.post("/auth/sign-in/email", json={"email": EMAIL, "password": "correct horse battery"}).json
    headers = {"Authorization": f"Bearer {answer['token']}"}
    organization = browser.get("/orgs", headers=headers).json["organizations"][0]["id"]
    path, body = f"/orgs/{organization}/invitations", {"email": "ada@example.com", "role": "developer"}
    made = browser.post(path, json=body, headers=headers).json["invitation"]
    assert made["emailed"] is True
    [letter] = deliver(gateway, server)
    assert letter.recipients == ["ada@example.com"] and made["token"] in letter.text


def test_without_mail_nothing_is_sent_and_the_page_says_so(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/invitations"
    given = {"email": "grace@example.com", "role": "developer"}
    assert shared_tenants.ok("POST", path, owner, given)["invitation"]["emailed"] is False
    browser = shared_tenants.gateway.app.flask.test_client()
    assert "does not send e-mail" in browser.get("/console/forgot").text
    assert ask(browser, EMAIL).status_code == 404


def test_an_address_that_another_changed_gets_no_link_until_its_person_confirms_it(gateway, server, browser) -> None:
    ask(browser, EMAIL)
    [letter] = deliver(gateway, server)
    database = gateway.services.store.database
    database.write(lambda: database.execute("UPDATE \"user\" SET email_set_by = 'scim_1' WHERE email = ?", (EMAIL,)))
    assert open_link(browser, link_of(letter)).status_code == 410, "a link from before the change has ended too"
    ask(browser, EMAIL)
    assert len(deliver(gateway, server)) == 1
    answer = browser.post("/auth/sign-in/email", json={"email": EMAIL, "password": "correct horse battery"})
    session = {"Authorization": f"Bearer {answer.json['token']}"}
    # The gateway's public address is https, so that the client keeps the cookie for itself.
    page = browser.get("/console/account", headers={"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}).text
    assert "until you confirm that it is yours" in page
    for _ in range(3):  # what changes nothing is no entry of the audit log
        assert browser.post("/auth/confirm-email", headers=session).status_code == 200
    actions = [entry.action for entry in audit.list_entries(database, limit=1000)]
    assert actions.count("user.confirm_email") == 1
    assert open_link(browser, link_of(letter)).status_code == 200
    ask(browser, EMAIL)
    assert len(deliver(gateway, server)) == 2
