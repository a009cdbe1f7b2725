import gzip
import re

import pytest

from gateway.clock import DAY_US
from gateway.surfaces.console import visits
from gateway.surfaces.console.table import SURFACE
from gateway.surfaces.visitors import visitor as visitor_module

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
OWN = {"Origin": "http://localhost"}
CLIENT = {"client_id": "llmgateway-cli"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')


@pytest.fixture
def browser(shared_tenants):
    """A client that keeps cookies."""
    return shared_tenants.gateway.app.flask.test_client()


def sign_in(browser, redirect: str = "/console", **more: str):
    form = {"email": EMAIL, "password": PASSWORD, "redirect": redirect, **more}
    return browser.post("/console/login", data=form, headers=OWN)


def fields(answer) -> dict[str, str]:
    return dict(FIELD.findall(answer.get_data(as_text=True).partition("<main")[2].split("<button", 1)[0]))


def test_a_person_signs_in_compares_the_code_and_approves(browser, shared_tenants) -> None:
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    first = browser.get(f"/console/device?user_code={grant['user_code']}")
    assert first.status_code == 303 and "/console/login?redirect=" in first.headers["Location"]
    form = fields(browser.get(first.headers["Location"]))
    then = sign_in(browser, form["redirect"])
    page = browser.get(then.headers["Location"])
    assert grant["user_code"] in page.text and EMAIL in page.text and "llmgateway-cli" in page.text
    done = browser.post("/console/device", data={**fields(page), "decision": "approve"}, headers=OWN)
    assert done.status_code == 200 and "signed in" in done.text
    assert browser.get(f"/console/device?user_code={grant['user_code']}").text.count("already been used") == 1


def test_a_person_denies_a_device(browser, shared_tenants) -> None:
    sign_in(browser)
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    form = fields(browser.get(f"/console/device?user_code={grant['user_code']}"))
    denied = browser.post("/console/device", data={**form, "decision": "deny"}, headers=OWN)
    assert denied.status_code == 200 and "The request was denied" in denied.text
    body = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": grant["device_code"], **CLIENT}
    assert shared_tenants.call("POST", "/auth/device/token", body=body)[1]["error"] == "access_denied"


@pytest.mark.parametrize("path", ["/console/login", "/console/account", "/connect", "/docs"])
def test_pages_and_redirects_are_neither_framed_nor_stored(browser, path) -> None:
    headers = browser.get(path).headers
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "same-origin"


def test_a_part_of_a_page_leads_to_the_sign_in_page(browser) -> None:
    answer = browser.get("/console/logs?live=1", headers={"HX-Request": "true"})
    assert answer.status_code == 200 and not answer.data and answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["HX-Redirect"].startswith("http://localhost/console/login?redirect=%2Fconsole%2Flogs")


def test_pages_load_nothing(browser) -> None:
    headers = browser.get("/console/login").headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("csrf", ["", "0" * 64])
def test_a_form_without_its_token_approves_nothing(browser, shared_tenants, csrf) -> None:
    sign_in(browser)
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    form = {"user_code": grant["user_code"], "decision": "approve", "csrf": csrf}
    assert browser.post("/console/device", data=form, headers=OWN).status_code == 403
    who = shared_tenants["acme owner"]
    assert shared_tenants.ok("GET", f"/auth/device?user_code={grant['user_code']}", who)["status"] == "pending"


def test_the_token_of_one_code_approves_no_other(browser, shared_tenants) -> None:
    sign_in(browser)
    first, second = (shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)["user_code"] for _ in range(2))
    form = fields(browser.get(f"/console/device?user_code={first}"))
    form |= {"user_code": second, "decision": "approve"}
    assert browser.post("/console/device", data=form, headers=OWN).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
def test_forms_of_other_origins_are_refused(browser, headers) -> None:
    form = {"email": EMAIL, "password": PASSWORD}
    answer = browser.post("/console/login", data=form, headers=headers)
    assert answer.status_code == 403 and "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        operation.path
        for operation in SURFACE.operations
        if operation.method == "POST"
        and operation.path.startswith("/console/")
        # The token of this link is signed and allows nothing else; mail programs send its form without an origin.
        and operation.path != "/console/stop/<token>"
    ],
)
def test_every_form_is_accepted_from_a_page_of_this_site_and_session_only(browser, path) -> None:
    sign_in(browser)
    for headers in ({}, {"Origin": "https://evil.example"}):
        assert browser.post(path, data={"csrf": ""}, headers=headers).status_code == 403
    if path not in ("/console/login", "/console/passkeys/sign-in"):  # these need no session
        assert browser.post(path, data={"csrf": "0" * 64}, headers=OWN).status_code in (400, 403, 404)
        assert browser.get("/console/account").status_code == 200  # nothing was done


@pytest.mark.parametrize(
    "path", ["/console", "/console/account", "/console/alerts", "/console/device", "/console/logs?status=400"]
)
def test_pages_require_signing_in_and_are_shown_afterwards(browser, path) -> None:
    first = browser.get(path)
    assert first.status_code == 303 and first.headers["Location"].startswith("http://localhost/console/login")
    assert (
        sign_in(browser, fields(browser.get(first.headers["Location"]))["redirect"]).headers["Location"].endswith(path)
    )


def test_unknown_sessions_and_those_of_deactivated_accounts_lead_to_the_sign_in_page(tenants) -> None:
    database, token = tenants.services.store.database, tenants["acme developer"].token
    deactivate = "UPDATE \"user\" SET status = 'inactive' WHERE email = 'developer@acme.example'"
    database.write(lambda: database.execute(deactivate))
    for cookie in (token, f"{token[:-4]}0000"):
        answer = tenants.client.get("/console/account", headers={"Cookie": f"llmgateway.session_token={cookie}"})
        assert answer.status_code == 303 and "/console/login" in answer.headers["Location"]


def test_single_sign_on_leads_to_the_form_with_the_email_filled_in(browser) -> None:
    first = browser.get("/sso?email=ada%40example.com&redirect=%2Fconsole%2Flogs")
    shown = browser.get(first.headers["Location"])
    assert first.status_code == 303 and fields(shown)["redirect"] == "/console/logs"
    assert 'value="ada@example.com"' in shown.text
    assert browser.get("/sso?redirect=https%3A%2F%2Fevil.example").headers["Location"].startswith("http://localhost/")


@pytest.mark.parametrize("path", ["/console/account", "/console/alerts"])
def test_a_button_that_a_page_does_not_have_does_nothing(browser, path) -> None:
    sign_in(browser)
    csrf = re.findall(r'name="csrf" value="([^"]+)"', browser.get(path).text)[-1]
    answer = browser.post(path, data={"csrf": csrf, "action": "explode"}, headers=OWN)
    assert answer.status_code == 400 and "Unknown action." in answer.text


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x",
                                    "/a\\b", "/ok\r\nSet-Cookie: a=b", ""])  # fmt: skip
def test_signing_in_never_redirects_to_another_site(browser, target) -> None:
    assert sign_in(browser, target).headers["Location"] == "http://localhost/console"


def test_a_wrong_password_shows_the_form_again_with_a_401(browser) -> None:
    answer = sign_in(browser, password="wrong")
    assert answer.status_code == 401 and "password is wrong" in answer.text and EMAIL in answer.text


def test_typed_text_is_escaped(browser) -> None:
    answer = browser.get("/console/login?email=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>" not in answer.text and "&lt;script&gt;" in answer.text


def test_after_an_unknown_code_the_page_requests_another_one(browser) -> None:
    sign_in(browser)
    answer = browser.get("/console/device?user_code=NOPE-NOPE")
    assert answer.status_code == 404 and 'name="user_code"' in answer.text


def test_the_browser_is_known_after_signing_in(browser) -> None:
    names = {cookie.partition("=")[0] for cookie in sign_in(browser).headers.getlist("Set-Cookie")}
    assert names == {visitor_module.COOKIE, visitor_module.DEVICE}


def test_an_identity_provider_that_cannot_sign_in_silently_is_forgotten(browser) -> None:
    browser.set_cookie(visits.PROVIDER_COOKIE, "idp_gone")
    silent = browser.get("/console/login?redirect=%2Fconsole%2Fkeys").headers["Location"]
    assert "/console/sso/idp_gone?" in silent
    form = browser.get(silent)
    assert "sso=again" in form.headers["Location"] and "redirect=%2Fconsole%2Fkeys" in form.headers["Location"]
    assert browser.get_cookie(visits.PROVIDER_COOKIE) is None


def test_signing_out_ends_the_session(browser) -> None:
    sign_in(browser)
    form = fields(browser.get("/console/account"))
    assert browser.post("/console/logout", data=form, headers=OWN).status_code == 303
    assert browser.get("/console/account").headers["Location"].endswith("/console/login?redirect=%2Fconsole%2Faccount")


def test_single_sign_on_leads_to_the_form(browser) -> None:
    answer = browser.get("/sso?redirect=/console/device%3Fuser_code%3DA&email=a@b.example")
    form = browser.get(answer.headers["Location"]).text
    assert "/console/device?user_code=A" in form and "a@b.example" in form


def test_old_addresses_lead_to_the_same_pages_and_keep_queries_and_forms(browser) -> None:
    old = {
        "/connect": "/console",
        "/connect/invitation?token=inv_1%2F": "/console/invitation?token=inv_1%2F",
        "/connect/logs/a%20b": "/console/logs/a%20b",
        "/connect//evil.example": "/console/evil.example",
    }
    for path, new in old.items():
        answer = browser.get(path)
        while answer.status_code == 308 and "/connect" in answer.headers["Location"]:
            answer = browser.get(answer.headers["Location"])
        assert answer.status_code == 308 and answer.headers["Location"] == f"http://localhost{new}"
    posted = browser.post("/connect/login", data={}, headers=OWN)
    assert posted.status_code == 308  # the browser sends the same form again
    browser.post(posted.headers["Location"], data={"email": EMAIL, "password": PASSWORD}, headers=OWN)
    assert browser.get("/console/account").status_code == 200
    assert browser.post("/connect", data={}, headers=OWN).headers["Location"].endswith("/console/account")


def test_the_style_sheet_is_compressed_and_cached_for_a_year_under_the_address_of_its_version(browser) -> None:
    page = browser.get("/console/login").text
    [path] = re.findall(r'rel="stylesheet" href="([^"]+)"', page)
    answer = browser.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200 and answer.headers["Content-Encoding"] == "gzip"
    assert "max-age=31536000" in answer.headers["Cache-Control"] and len(answer.data) < 20_000
    assert answer.headers["Content-Type"].startswith("text/css")
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(answer.data) == browser.get(path).data
    other = browser.get(path.replace(path.split("/")[-2], "0" * 16))
    assert other.status_code == 200 and other.headers["Cache-Control"] == "no-cache"
    assert browser.get("/console/assets/0/pages.py").status_code == 404


@pytest.mark.parametrize(
    "path", ["/console", "/console/notices/count", "/console/playground/models", "/console/unknown"]
)
def test_a_session_that_was_extended_renews_its_cookie(browser, shared_tenants, path) -> None:
    sign_in(browser)
    cookie = browser.get_cookie("llmgateway.session_token").value
    assert "Set-Cookie" not in browser.get("/console/account").headers
    age_sessions(shared_tenants)
    [renewed] = [one for one in browser.get(path).headers.getlist("Set-Cookie") if "session_token" in one]
    assert renewed.startswith(f"llmgateway.session_token={cookie};") and f"Max-Age={30 * 86_400};" in renewed


def test_a_sign_out_removes_the_cookie_of_a_session_that_it_extended(browser, shared_tenants) -> None:
    sign_in(browser)
    form = fields(browser.get("/console/account"))
    age_sessions(shared_tenants)
    browser.post("/console/logout", data=form, headers=OWN)
    assert browser.get_cookie("llmgateway.session_token") is None


def age_sessions(tenants) -> None:
    """Let two days pass for all sessions."""
    database = tenants.services.store.database
    database.write(lambda: database.execute("UPDATE session SET refreshed_at = refreshed_at - ?", (2 * DAY_US,)))
