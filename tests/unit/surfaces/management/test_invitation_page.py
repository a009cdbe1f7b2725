import re

import pytest

PASSWORD = "a long enough password"
OWN = {"Origin": "http://localhost"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')
PAGE = "/console/invitation"


@pytest.fixture
def browser(shared_tenants):
    """A client that keeps cookies."""
    return shared_tenants.gateway.app.flask.test_client()


def invite(tenants, email: str, role: str = "developer") -> dict:
    owner = tenants["acme owner"]
    given = {"email": email, "role": role}
    return tenants.ok("POST", f"/orgs/{owner.organization_id}/invitations", owner, given)["invitation"]


def fields(answer) -> dict[str, str]:
    return dict(FIELD.findall(answer.text))


def follow(browser, link: str):
    """The page behind a link."""
    first = browser.get(link.removeprefix("http://localhost"))
    return browser.get(first.headers["Location"]) if first.status_code == 303 else first


def sign_in_as(tenants, browser, who) -> None:
    browser.set_cookie("llmgateway.session_token", who.token)


def send(browser, page, **more: str):
    return browser.post(PAGE, data={**fields(page), **more}, headers=OWN)


def test_new_people_choose_a_password_and_are_signed_in(browser, shared_tenants) -> None:
    made = invite(shared_tenants, "new@person.example", "admin")
    page = follow(browser, made["link"])
    for told in ("acme", "new@person.example", "admin", "owner@acme.example"):
        assert told in page.text
    done = send(browser, page, name="New Person", password=PASSWORD)
    assert done.status_code == 200 and "You are now a member" in done.text
    assert browser.get_cookie("llmgateway.invitation") is None
    assert "new@person.example" in browser.get("/console/account").text
    again = shared_tenants.gateway.app.flask.test_client()
    body = {"email": "new@person.example", "password": PASSWORD}
    assert again.post("/auth/sign-in/email", json=body).status_code == 200


def test_people_signed_in_with_the_address_accept_in_one_click(browser, shared_tenants) -> None:
    rival = shared_tenants["rival developer"]
    made = invite(shared_tenants, "developer@rival.example")
    sign_in_as(shared_tenants, browser, rival)
    page = follow(browser, made["link"])
    assert page.status_code == 200 and "Accept invitation" in page.text and "password" not in page.text
    assert send(browser, page).status_code == 200
    me = shared_tenants.ok("GET", "/user/me", rival)
    assert made["organizationId"] in {membership["organizationId"] for membership in me["memberships"]}
    assert "You have already accepted this invitation" in follow(browser, made["link"]).text


def test_the_token_is_in_no_pages_address_or_text(browser, shared_tenants) -> None:
    made = invite(shared_tenants, "quiet@person.example")
    first = browser.get(made["link"].removeprefix("http://localhost"))
    assert first.status_code == 303 and first.headers["Referrer-Policy"] == "no-referrer"
    assert first.headers["Location"] == f"http://localhost{PAGE}"
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
    page = browser.get(PAGE)
    assert made["token"] not in page.text and page.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "change, message",
    [
        ("status = 'revoked'", "was revoked"),
        ("expires_at = 1", "has expired"),
        ("status = 'accepted'", "already been accepted"),
    ],
)
def test_an_ended_invitation_says_why_and_what_to_do(browser, shared_tenants, change, message) -> None:
    made = invite(shared_tenants, "late@person.example")
    database = shared_tenants.services.store.database
    database.write(lambda: database.execute(f"UPDATE invitation SET {change} WHERE id = ?", (made["id"],)))
    page = follow(browser, made["link"])
    assert page.status_code == 410 and message in page.text and "ask the sender" in page.text.lower()


@pytest.mark.parametrize("query", ["", "?token=x", "?token=llmginv_" + "x" * 40, "?token=llmginv_a%0d%0aSet-Cookie:b"])
def test_a_link_to_nothing_is_a_404_that_shows_what_to_do(browser, query) -> None:
    page = follow(browser, PAGE + query)
    assert page.status_code == 404 and ("link" in page.text) and "Set-Cookie" not in page.headers


def test_another_account_has_to_sign_out_and_returns(browser, shared_tenants) -> None:
    made = invite(shared_tenants, "wanted@person.example")
    sign_in_as(shared_tenants, browser, shared_tenants["rival owner"])
    page = follow(browser, made["link"])
    assert page.status_code == 403
    assert "owner@rival.example" in page.text and "wanted@person.example" in page.text
    out = browser.post("/console/logout", data=fields(page), headers=OWN)
    assert out.headers["Location"].endswith(PAGE)


def test_an_address_with_an_account_signs_in_and_comes_back(browser, shared_tenants) -> None:
    made = invite(shared_tenants, "admin@rival.example")
    page = follow(browser, made["link"])
    assert fields(page) == {"redirect": PAGE, "email": "admin@rival.example"}
    thief = {"csrf": "", "name": "Thief", "password": PASSWORD}
    assert browser.post(PAGE, data=thief, headers=OWN).status_code == 403


@pytest.mark.parametrize("password", ["", "too short"])
def test_a_short_password_shows_the_form_again_and_uses_nothing_up(browser, shared_tenants, password) -> None:
    made = invite(shared_tenants, f"short{len(password)}@person.example")
    page = follow(browser, made["link"])
    again = send(browser, page, name="<b>Ann</b>", password=password)
    assert again.status_code == 400 and "12 to 1024" in again.text and "&lt;b&gt;Ann" in again.text
    assert send(browser, again, name="Ann", password=PASSWORD).status_code == 200


@pytest.mark.parametrize("headers, csrf", [(OWN, "0" * 64), ({"Origin": "https://evil.example"}, None), ({}, None)])
def test_a_form_from_elsewhere_accepts_nothing(browser, shared_tenants, headers, csrf) -> None:
    made = invite(shared_tenants, "forged@person.example")
    form = {**fields(follow(browser, made["link"])), "name": "x", "password": PASSWORD}
    form |= {"csrf": csrf} if csrf else {}
    assert browser.post(PAGE, data=form, headers=headers).status_code == 403
    assert follow(browser, made["link"]).status_code == 200


def test_the_form_of_one_invitation_accepts_no_other(browser, shared_tenants) -> None:
    first, second = (invite(shared_tenants, f"{name}@person.example") for name in ("one", "two"))
    form = fields(follow(browser, first["link"]))
    follow(browser, second["link"])
    assert browser.post(PAGE, data={**form, "name": "x", "password": PASSWORD}, headers=OWN).status_code == 403


def test_two_at_once_make_one_account(browser, shared_tenants) -> None:
    made = invite(shared_tenants, "twice@person.example")
    page = follow(browser, made["link"])
    other = shared_tenants.gateway.app.flask.test_client()
    other_page = follow(other, made["link"])
    first, second = (
        send(browser, page, name="A", password=PASSWORD),
        send(other, other_page, name="B", password=PASSWORD),
    )
    assert first.status_code == 200 and second.status_code == 410


def test_looking_up_is_slowed_down(tenants) -> None:
    browser = tenants.gateway.app.flask.test_client()
    codes = [follow(browser, f"{PAGE}?token=llmginv_{number:040d}").status_code for number in range(65)]
    assert codes[:60] == [404] * 60 and set(codes[60:]) == {429}


def test_the_inviting_person_is_named_if_there_is_a_name(tenants) -> None:
    owner = tenants["acme owner"]
    database = tenants.services.store.database
    sql = "UPDATE \"user\" SET name = 'Ann Owner' WHERE id = ?"
    database.write(lambda: database.execute(sql, (owner.user_id,)))
    assert invite(tenants, "told@person.example")["invitedBy"] == "Ann Owner"
