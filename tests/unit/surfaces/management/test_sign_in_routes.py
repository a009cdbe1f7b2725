import json

import pytest

from gateway.store.documents import Documents

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
SIGN_IN = "/auth/sign-in/email"
RIGHT = {"email": EMAIL, "password": PASSWORD}


def cookie_of(tenants, **headers: str) -> str:
    answer = tenants.client.post(SIGN_IN, json=RIGHT, headers=headers)
    assert answer.status_code == 200
    return answer.headers["Set-Cookie"]


def test_the_right_password_opens_a_session_by_token_and_by_cookie(shared_tenants) -> None:
    answer = shared_tenants.ok("POST", SIGN_IN, body=RIGHT)
    assert answer["user"]["email"] == EMAIL
    by_token = shared_tenants.ok("GET", "/auth/get-session", answer["token"])
    cookie = cookie_of(shared_tenants).partition(";")[0]
    by_cookie = shared_tenants.ok("GET", "/auth/get-session", Cookie=cookie)
    assert by_token["user"] == by_cookie["user"]


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(shared_tenants) -> None:
    plain = cookie_of(shared_tenants)
    assert plain.startswith("llmgateway.session_token=llmgses_")
    assert "HttpOnly" in plain and "SameSite=Lax" in plain and "Max-Age=2592000" in plain and "Secure" not in plain


def test_the_cookie_is_a_secure_one_behind_https(make_tenants) -> None:
    with make_tenants(GATEWAY_SERVER_PUBLIC_URL="https://llm.example.com") as gateway:
        answer = gateway.app.flask.test_client().post(SIGN_IN, json=RIGHT)
        cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-llmgateway.session_token=") and cookie.endswith("; Secure")


def test_a_gateway_below_a_path_sends_its_cookie_to_that_path_alone(make_tenants) -> None:
    with make_tenants(GATEWAY_SERVER_PUBLIC_URL="https://www.example.com/llm/") as gateway:
        client = gateway.app.flask.test_client(use_cookies=False)
        cookie = client.post(SIGN_IN, json=RIGHT).headers["Set-Cookie"]
        name = cookie.partition(";")[0]
        session = client.get("/auth/get-session", headers={"Cookie": name}).get_json()
        description = client.get("/openapi.json").get_json()
    # Browsers refuse a cookie with the prefix __Host- for any path but "/".
    assert cookie.startswith("__Secure-llmgateway.session_token=") and "; Path=/llm;" in cookie
    assert session["user"]["email"] == EMAIL
    assert description["servers"] == [{"url": "https://www.example.com/llm"}]


@pytest.mark.parametrize("email", [EMAIL, "nobody@example.com"])
def test_a_wrong_password_and_an_unknown_address_look_alike(shared_tenants, email) -> None:
    status, answer = shared_tenants.call("POST", SIGN_IN, body={"email": email, "password": "wrong"})
    assert (status, answer["error"]) == (401, "invalid_credentials")
    assert answer["message"] == "The e-mail address or the password is wrong."


def test_an_unknown_address_is_looked_up_as_often_as_a_known_one(shared_tenants, monkeypatch) -> None:
    find, kinds = Documents.get, []
    monkeypatch.setattr(Documents, "get", lambda self, kind, key: kinds.append(kind) or find(self, kind, key))
    looked_up = []
    for email in (EMAIL, "nobody@example.com"):
        shared_tenants.refused("POST", SIGN_IN, body={"email": email, "password": "wrong"})
        looked_up.append(kinds.count("known_place"))
        kinds.clear()
    assert looked_up == [1, 1]


def test_guessing_passwords_is_slowed_down_even_with_the_right_one_at_last(tenants) -> None:
    for _ in range(10):
        assert tenants.refused("POST", SIGN_IN, body={"email": EMAIL, "password": "x"}) == "401 invalid_credentials"
    answer = tenants.client.post(SIGN_IN, json=RIGHT)
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 60


def test_a_deactivated_account_is_refused_with_the_reason(tenants) -> None:
    database = tenants.services.store.database
    database.write(lambda: database.execute("UPDATE \"user\" SET status = 'inactive' WHERE email = ?", (EMAIL,)))
    status, answer = tenants.call("POST", SIGN_IN, body=RIGHT)
    assert (status, answer["error"]) == (403, "account_deactivated")


def test_signing_out_ends_the_session_everywhere(shared_tenants) -> None:
    token = shared_tenants.ok("POST", SIGN_IN, body=RIGHT)["token"]
    assert shared_tenants.ok("POST", "/auth/sign-out", token, {}) == {"success": True}
    assert shared_tenants.ok("GET", "/auth/get-session", token) is None
    assert shared_tenants.refused("GET", "/orgs", token) == "401 session_invalid"
    assert shared_tenants.ok("POST", "/auth/sign-out", token, {}) == {"success": True}


def test_an_api_key_is_no_session(shared_tenants) -> None:
    status, answer = shared_tenants.call("GET", "/orgs", shared_tenants["acme owner"].key.token)
    assert status == 401 and "not an API key" in answer["message"]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_a_page_of_another_origin_can_neither_sign_in_nor_change(shared_tenants, origin) -> None:
    cookie = cookie_of(shared_tenants).partition(";")[0]
    sent = {"Cookie": cookie, "Origin": origin, "Sec-Fetch-Site": "cross-site"}
    page = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    assert shared_tenants.refused("POST", SIGN_IN, body=RIGHT, **page) == "403 untrusted_origin"
    assert shared_tenants.refused("POST", "/orgs", body={"name": "X"}, **sent) == "403 untrusted_origin"
    assert shared_tenants.ok("GET", "/orgs", **sent)


def test_a_change_by_cookie_needs_an_origin_at_all(shared_tenants) -> None:
    cookie = cookie_of(shared_tenants).partition(";")[0]
    sent = {"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}
    assert shared_tenants.refused("POST", "/orgs", body={"name": "X"}, **sent) == "403 untrusted_origin"
    assert shared_tenants.client.head("/orgs", headers=sent).status_code == 200


def test_our_own_origin_is_trusted_and_no_other_local_one(shared_tenants) -> None:
    cookie = cookie_of(shared_tenants).partition(";")[0]
    assert shared_tenants.ok("POST", "/orgs", body={"name": "Trusted"}, Cookie=cookie, Origin="http://localhost")
    other = {"Cookie": cookie, "Origin": "http://localhost:3002"}
    for site in ("same-site", "cross-site", "none"):
        sent = other | {"Sec-Fetch-Site": site}
        assert shared_tenants.refused("POST", "/orgs", body={"name": "X"}, **sent) == "403 untrusted_origin"


@pytest.mark.parametrize("origin", ["http://localhost:3002", "https://dashboard.example"])
def test_a_program_may_name_any_origin_at_a_loopback_address(shared_tenants, origin) -> None:
    sent = {"Cookie": cookie_of(shared_tenants).partition(";")[0], "Origin": origin, "Sec-Fetch-Mode": "cors"}
    assert shared_tenants.ok("POST", SIGN_IN, body=RIGHT, Origin=origin)["token"]
    assert shared_tenants.ok("POST", "/orgs", body={"name": "Program"}, **sent)
    assert shared_tenants.ok("POST", "/auth/sign-out", body={}, **sent)


@pytest.mark.parametrize("host", ["localhost:4001", "127.0.0.1:4001", "[::1]:4001"])
def test_every_loopback_address_is_one(shared_tenants, host) -> None:
    program = {"Origin": "http://localhost:3002", "Host": host}
    assert shared_tenants.ok("POST", SIGN_IN, body=RIGHT, **program)["token"]


def test_a_program_at_another_address_needs_a_trusted_origin(shared_tenants) -> None:
    other = {"Origin": "http://localhost:3002", "Host": "rebound.example"}
    assert shared_tenants.refused("POST", SIGN_IN, body=RIGHT, **other) == "403 untrusted_origin"


def test_behind_https_a_cookie_without_the_host_prefix_is_ignored(make_tenants) -> None:
    with make_tenants(GATEWAY_SERVER_PUBLIC_URL="https://llm.example.com") as gateway:
        client = gateway.app.flask.test_client(use_cookies=False)
        token = client.post(SIGN_IN, json=RIGHT).get_json()["token"]
        known = [
            client.get("/auth/get-session", headers={"Cookie": f"{name}llmgateway.session_token={token}"}).get_json()
            for name in ("", "__Secure-", "__Host-")
        ]
    assert known[:2] == [None, None] and known[2]["user"]["email"] == EMAIL


def test_a_configured_origin_is_trusted(make_tenants) -> None:
    public = {"GATEWAY_SERVER_PUBLIC_URL": "https://llm.example.com"}
    with make_tenants(**public, GATEWAY_SECURITY_TRUSTED_ORIGINS="https://app.example.com") as gateway:
        client = gateway.app.flask.test_client()
        statuses = [
            client.post(SIGN_IN, json=RIGHT, headers={"Origin": origin}).status_code
            for origin in ("https://app.example.com", "https://llm.example.com", "http://localhost:3002")
        ]
    assert statuses == [200, 200, 403]


def test_changing_the_password_ends_the_other_sessions(tenants) -> None:
    kept, other = (tenants.ok("POST", SIGN_IN, body=RIGHT)["token"] for _ in range(2))
    change = {"currentPassword": PASSWORD, "newPassword": "another good password"}
    assert tenants.refused("POST", "/auth/change-password", kept, {**change, "currentPassword": "x"}).startswith("401")
    assert tenants.refused("POST", "/auth/change-password", kept, {**change, "newPassword": "short"}).startswith("400")
    tenants.ok("POST", "/auth/change-password", kept, change)
    assert tenants.ok("GET", "/auth/get-session", kept) and tenants.ok("GET", "/auth/get-session", other) is None
    assert tenants.refused("POST", SIGN_IN, body=RIGHT) == "401 invalid_credentials"


def test_signing_up_requires_an_invitation(shared_tenants) -> None:
    body = {"token": "llmginv_made_up_by_somebody", "password": "long enough it is", "name": "X"}
    for path in ("/auth/sign-up/email", "/auth/invitation"):
        assert shared_tenants.refused("POST", path, body=body) == "404 invitation_unknown"


def test_a_person_with_an_account_does_not_sign_up_again(tenants) -> None:
    path = f"/orgs/{tenants['acme owner'].organization_id}/invitations"
    invited = tenants.ok("POST", path, tenants["acme owner"], {"email": "owner@rival.example"})["invitation"]
    body = {"token": invited["token"], "password": "long enough it is", "name": "X"}
    assert tenants.refused("POST", "/auth/sign-up/email", body=body) == "409 user_exists"


@pytest.mark.parametrize("path", ["/auth/sign-up/email", "/auth/invitation"])
def test_guessing_invitations_is_slowed_down(tenants, path: str) -> None:
    body = {"token": "llmginv_made_up_by_somebody", "password": "long enough it is", "name": "X"}
    refusals = [tenants.call("POST", path, body=body)[0] for _ in range(61)]
    assert refusals[:50] == [404] * 50 and refusals[-1] == 429


def test_an_invited_person_signs_up_and_belongs(tenants) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/invitations"
    token = tenants.ok("POST", path, owner, {"email": "new@acme.example", "role": "admin"})["invitation"]["token"]
    assert tenants.ok("POST", "/auth/invitation", body={"token": token})["invitation"]["organizationName"] == "acme"
    body = {"token": token, "name": "New", "password": "long enough it is"}
    other = body | {"email": "mine@elsewhere.example"}
    assert tenants.refused("POST", "/auth/sign-up/email", body=other) == "400 invalid_parameters"
    body["email"] = "New@acme.example"
    session = tenants.ok("POST", "/auth/sign-up/email", body=body)
    me = tenants.ok("GET", "/user/me", session["token"])
    assert me["memberships"][0]["organizationId"] == owner.organization_id
    assert me["memberships"][0]["role"] == "admin" and me["operator"] is False


def test_a_short_password_is_refused_at_sign_up(tenants) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/invitations"
    token = tenants.ok("POST", path, owner, {"email": "new@acme.example"})["invitation"]["token"]
    body = {"token": token, "password": "elevenchars"}
    assert tenants.refused("POST", "/auth/sign-up/email", body=body) == "400 invalid_parameters"


ODD = [
    *([], "x", 7, None, {"email": EMAIL}, {"email": EMAIL, "password": 7}),
    *({"email": "a\0b", "password": "x"}, {"email": "\ud800", "password": "x"}),
]


@pytest.mark.parametrize("body", ODD)
def test_a_body_of_another_shape_is_a_400(shared_tenants, body) -> None:
    text = json.dumps(body)
    headers = {"Content-Type": "application/json"}
    assert shared_tenants.client.post(SIGN_IN, data=text, headers=headers).status_code == 400


def test_a_body_of_another_type_is_a_415(shared_tenants) -> None:
    assert shared_tenants.client.post(SIGN_IN, data="email=x").status_code == 415
