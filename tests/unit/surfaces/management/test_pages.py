import re

import pytest

from gateway.surfaces.console.table import SURFACE

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
OWN = {"Origin": "http://localhost"}
CLIENT = {"client_id": "llmgateway-cli"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')


@pytest.fixture
def browser(shared_tenants):
    """A client that keeps cookies."""
    return shared_tenants.gateway.app.flask.test_client()


def sign_in(browser, redirect: str = "/connect", **more: str):
    form = {"email": EMAIL, "password": PASSWORD, "redirect": redirect, **more}
    return browser.post("/connect/login", data=form, headers=OWN)


def fields(answer) -> dict[str, str]:
    return dict(FIELD.findall(answer.get_data(as_text=True).split("<button", 1)[0]))


def test_a_person_signs_in_compares_the_code_and_approves(browser, shared_tenants) -> None:
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    first = browser.get(f"/connect/device?user_code={grant['user_code']}")
    assert first.status_code == 303 and "/connect/login?redirect=" in first.headers["Location"]
    form = fields(browser.get(first.headers["Location"]))
    then = sign_in(browser, form["redirect"])
    page = browser.get(then.headers["Location"])
    assert grant["user_code"] in page.text and EMAIL in page.text and "llmgateway-cli" in page.text
    done = browser.post("/connect/device", data={**fields(page), "decision": "approve"}, headers=OWN)
    assert done.status_code == 200 and "signed in" in done.text
    assert browser.get(f"/connect/device?user_code={grant['user_code']}").text.count("already been used") == 1


def test_pages_cannot_be_framed_and_load_nothing(browser) -> None:
    headers = browser.get("/connect/login").headers
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("csrf", ["", "0" * 64])
def test_a_form_without_its_token_approves_nothing(browser, shared_tenants, csrf) -> None:
    sign_in(browser)
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    form = {"user_code": grant["user_code"], "decision": "approve", "csrf": csrf}
    assert browser.post("/connect/device", data=form, headers=OWN).status_code == 403
    who = shared_tenants["acme owner"]
    assert shared_tenants.ok("GET", f"/auth/device?user_code={grant['user_code']}", who)["status"] == "pending"


def test_the_token_of_one_code_approves_no_other(browser, shared_tenants) -> None:
    sign_in(browser)
    first, second = (shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)["user_code"] for _ in range(2))
    form = fields(browser.get(f"/connect/device?user_code={first}"))
    form |= {"user_code": second, "decision": "approve"}
    assert browser.post("/connect/device", data=form, headers=OWN).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
def test_forms_of_other_origins_are_refused(browser, headers) -> None:
    form = {"email": EMAIL, "password": PASSWORD}
    answer = browser.post("/connect/login", data=form, headers=headers)
    assert answer.status_code == 403 and "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("path", [one.path for one in SURFACE.operations if one.method == "POST"])
def test_every_form_is_taken_from_a_page_of_this_site_and_of_this_session(browser, path) -> None:
    sign_in(browser)
    for headers in ({}, {"Origin": "https://evil.example"}):
        assert browser.post(path, data={"csrf": ""}, headers=headers).status_code == 403
    if path != "/connect/login":
        assert browser.post(path, data={"csrf": "0" * 64}, headers=OWN).status_code in (400, 403, 404)
        assert browser.get("/connect").status_code == 200  # nothing was done


@pytest.mark.parametrize("path", ["/connect", "/connect/alerts", "/connect/device", "/connect/logs?status=400"])
def test_who_is_not_signed_in_does_that_first_and_goes_on_where_they_were(browser, path) -> None:
    first = browser.get(path)
    assert first.status_code == 303 and first.headers["Location"].startswith("http://localhost/connect/login")
    assert (
        sign_in(browser, fields(browser.get(first.headers["Location"]))["redirect"]).headers["Location"].endswith(path)
    )


def test_single_sign_on_leads_to_the_form_with_the_email_filled_in(browser) -> None:
    first = browser.get("/sso?email=ada%40example.com&redirect=%2Fconnect%2Flogs")
    shown = browser.get(first.headers["Location"])
    assert first.status_code == 303 and fields(shown)["redirect"] == "/connect/logs"
    assert 'value="ada@example.com"' in shown.text
    assert browser.get("/sso?redirect=https%3A%2F%2Fevil.example").headers["Location"].startswith("http://localhost/")


@pytest.mark.parametrize("path", ["/connect", "/connect/alerts"])
def test_a_button_that_a_page_does_not_have_does_nothing(browser, path) -> None:
    sign_in(browser)
    csrf = re.findall(r'name="csrf" value="([^"]+)"', browser.get(path).text)[-1]
    answer = browser.post(path, data={"csrf": csrf, "action": "explode"}, headers=OWN)
    assert answer.status_code == 400 and "Unknown action." in answer.text


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x",
                                    "/a\\b", "/ok\r\nSet-Cookie: a=b", ""])  # fmt: skip
def test_nobody_is_led_elsewhere_after_signing_in(browser, target) -> None:
    assert sign_in(browser, target).headers["Location"] == "http://localhost/connect"


def test_a_wrong_password_shows_the_form_again_with_a_401(browser) -> None:
    answer = sign_in(browser, password="wrong")
    assert answer.status_code == 401 and "password is wrong" in answer.text and EMAIL in answer.text


def test_what_a_person_types_is_escaped(browser) -> None:
    answer = browser.get("/connect/login?email=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script" not in answer.text and "&lt;script&gt;" in answer.text


def test_an_unknown_code_asks_for_another_one(browser) -> None:
    sign_in(browser)
    answer = browser.get("/connect/device?user_code=NOPE-NOPE")
    assert answer.status_code == 404 and 'name="user_code"' in answer.text


def test_signing_out_ends_the_session(browser) -> None:
    sign_in(browser)
    form = fields(browser.get("/connect"))
    assert browser.post("/connect/logout", data=form, headers=OWN).status_code == 303
    assert browser.get("/connect").headers["Location"].endswith("/connect/login")


def test_single_sign_on_leads_to_the_form(browser) -> None:
    answer = browser.get("/sso?redirect=/connect/device%3Fuser_code%3DA&email=a@b.example")
    form = browser.get(answer.headers["Location"]).text
    assert "/connect/device?user_code=A" in form and "a@b.example" in form
