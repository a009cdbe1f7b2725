"""Passkeys over HTTP: who may add one, and which sign-ins are refused."""

import html
import re
from typing import Any

import httpx
import pytest
from support.oauth import PASSWORD, Person, owner_of
from support.passkey_device import PasskeyDevice
from support.shared import Tenant

from gateway.accounts.members import find_user


class PasskeyPerson(Person):
    """A person at `localhost`, with a device in software."""

    def __init__(self, person: Person) -> None:
        super().__init__(person.base.replace("127.0.0.1", "localhost"), person.email)
        self.device = PasskeyDevice(self.origin, "localhost")

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.web.post(
            f"{self.base}/console/{path}", data={"redirect": "", **fields}, headers={"Origin": self.origin}
        )

    def account(self) -> httpx.Response:
        return self.open(f"{self.base}/console/account")

    def csrf(self) -> str:
        found = re.findall(
            r'name="csrf" value="([^"]+)">\s*<input type="hidden" name="action" value="add', self.account().text
        )
        return html.unescape(found[0])

    def add_passkey(self, password: str = PASSWORD, **more: str) -> httpx.Response:
        csrf = self.csrf()
        options = self.post("passkeys/registration", csrf=csrf, password=password)
        if options.status_code != 200:
            return options
        credential = self.device.create(options.text)
        return self.post("account", csrf=csrf, action="add_passkey", name="Laptop", credential=credential, **more)

    def sign_in(self, **fields: str) -> httpx.Response:
        self.web.cookies.clear()
        options = self.post("passkeys/sign-in", **fields)
        if options.status_code != 200:
            return options
        return self.post("login", credential=self.device.sign(options.text), **fields)


@pytest.fixture
def person(gateway: Tenant) -> PasskeyPerson:
    return PasskeyPerson(owner_of(gateway))


def execute(gateway: Tenant, sql: str, *values: Any) -> None:
    database = gateway.services.store.database
    database.write(lambda: database.execute(sql, values))


def user_id_of(gateway: Tenant) -> str:
    user_id = gateway.services.accounts.authentication.caller(gateway.key).user_id
    return find_user(gateway.services.store.database, user_id).id


def test_a_person_adds_a_passkey_and_signs_in(person: PasskeyPerson) -> None:
    assert person.add_passkey().status_code == 303
    assert "Laptop" in person.account().text
    answer = person.sign_in()
    assert answer.status_code == 303 and "session_token" in answer.headers["set-cookie"]
    assert person.web.get(f"{person.base}/console/account").status_code == 200


def test_a_passkey_needs_the_password_the_form_and_this_site(person: PasskeyPerson) -> None:
    refused = person.add_passkey(password="a wrong password")
    assert refused.status_code == 401 and "password" in refused.json()["message"]
    assert person.post("passkeys/registration", password=PASSWORD).status_code == 403
    csrf = person.csrf()
    fields = {"csrf": csrf, "password": PASSWORD}
    for headers in ({"Origin": "https://evil.example"}, {}):
        for path in ("passkeys/registration", "passkeys/sign-in"):
            assert person.web.post(f"{person.base}/console/{path}", data=fields, headers=headers).status_code == 403
    person.web.cookies.clear()
    answer = person.post("passkeys/registration", **fields)
    assert answer.status_code == 401 and "Sign in again" in answer.json()["message"]


def test_a_sign_in_without_the_cookie_of_its_browser_is_refused(person: PasskeyPerson) -> None:
    """Otherwise a person could be signed in to the account of an attacker."""
    person.add_passkey()
    person.web.cookies.clear()
    answer = person.device.sign(person.post("passkeys/sign-in").text)
    person.web.cookies.clear()
    refused = person.post("login", credential=answer)
    assert refused.status_code == 401 and "session_token" not in refused.headers.get("set-cookie", "")


def test_a_deactivated_person_is_refused(gateway: Tenant, person: PasskeyPerson) -> None:
    person.add_passkey()
    user_id = user_id_of(gateway)
    execute(gateway, 'UPDATE "user" SET status = ? WHERE id = ?', "inactive", user_id)
    assert person.sign_in().status_code == 401
    execute(gateway, 'UPDATE "user" SET status = ? WHERE id = ?', "active", user_id)
    assert person.sign_in().status_code == 303


def test_a_passkey_is_refused_where_single_sign_on_is_required(gateway: Tenant, person: PasskeyPerson) -> None:
    person.add_passkey()
    execute(gateway, "UPDATE organization SET sso_required = ? WHERE id = ?", True, gateway.organization_id)
    assert person.sign_in().status_code == 403


def test_the_password_alone_no_longer_suffices_with_a_passkey_as_second_factor(person: PasskeyPerson) -> None:
    person.add_passkey()
    page = person.post("account", csrf=person.csrf(), action="passkey_factor", password=PASSWORD)
    recovery = re.findall(r"[0-9a-f]{5}-[0-9a-f]{5}", page.text)
    assert len(recovery) == 10
    person.web.cookies.clear()
    answer = person.post("login", email=person.email, password=PASSWORD)
    ticket = html.unescape(re.findall(r'name="ticket" value="([^"]+)"', answer.text)[0])
    assert "session_token" not in answer.headers.get("set-cookie", "")
    body = {"email": person.email, "password": PASSWORD}
    api = person.web.post(f"{person.base}/auth/sign-in/email", json=body)
    assert (api.status_code, api.json()["error"]) == (401, "second_factor_required")
    # The secret of the factor is random and discarded, so no code is valid.
    wrong = person.post("login", ticket=ticket, code="000000")
    assert wrong.status_code == 401 and 'name="ticket"' in wrong.text
    stranger = PasskeyDevice(person.origin, "localhost", user_handle=person.device.user_handle)
    options = person.post("passkeys/sign-in", ticket=ticket).text
    foreign = person.post("login", ticket=ticket, credential=stranger.sign(options))
    assert foreign.status_code == 401 and 'name="ticket"' in foreign.text
    assert person.sign_in(ticket=ticket).status_code == 303
    # The last passkey stays while the second factor depends on it.
    passkey = re.findall(r'name="passkey" value="([^"]+)"', person.account().text)[0]
    refused = person.post("account", csrf=person.csrf(), action="remove_passkey", passkey=passkey)
    assert refused.status_code == 409
    removed = person.post("account", csrf=person.csrf(), action="remove", password=PASSWORD, code=recovery[0])
    assert removed.status_code == 303
    removed_again = person.post("account", csrf=person.csrf(), action="remove_passkey", passkey=passkey)
    assert removed_again.status_code == 303 and person.sign_in().status_code == 401
