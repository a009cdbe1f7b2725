import re

import pytest

CLIENT = {"client_id": "llmgateway-cli"}
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def poll(tenants, code: str) -> tuple[int, dict]:
    return tenants.call("POST", "/auth/device/token", body={"grant_type": GRANT, "device_code": code, **CLIENT})


def test_the_flow_ends_in_a_session_of_who_approved(shared_tenants) -> None:
    admin = shared_tenants["acme admin"]
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    assert re.fullmatch(r"[a-zA-Z0-9-]{1,64}", grant["user_code"])
    assert grant["verification_uri"] == "http://localhost/console/device" and grant["expires_in"] == 600
    assert grant["verification_uri_complete"] == f"{grant['verification_uri']}?user_code={grant['user_code']}"
    status, answer = poll(shared_tenants, grant["device_code"])
    assert (status, answer["error"]) == (400, "authorization_pending")
    assert shared_tenants.ok("GET", f"/auth/device?user_code={grant['user_code']}", admin)["status"] == "pending"
    shared_tenants.ok("POST", "/auth/device/approve", admin, {"userCode": grant["user_code"].lower()})
    token = poll(shared_tenants, grant["device_code"])[1]["access_token"]
    assert shared_tenants.ok("GET", "/auth/get-session", token)["user"]["email"] == "admin@acme.example"
    assert poll(shared_tenants, grant["device_code"])[1]["error"] == "expired_token"


def test_a_denied_request_is_reported_to_the_client(shared_tenants) -> None:
    grant = shared_tenants.ok("POST", "/auth/device/code", body=CLIENT)
    shared_tenants.ok("POST", "/auth/device/deny", shared_tenants["acme admin"], {"userCode": grant["user_code"]})
    assert poll(shared_tenants, grant["device_code"])[1]["error"] == "access_denied"


def test_only_the_known_client_gets_a_code(shared_tenants) -> None:
    status, answer = shared_tenants.call("POST", "/auth/device/code", body={"client_id": "another"})
    assert (status, answer["error"]) == (400, "invalid_client")


def test_codes_are_limited_by_place(tenants) -> None:
    statuses = [tenants.call("POST", "/auth/device/code", body=CLIENT)[0] for _ in range(31)]
    assert statuses == [200] * 30 + [429]


def test_guessing_user_codes_is_limited(tenants) -> None:
    who = tenants["acme developer"]
    statuses = {tenants.call("GET", "/auth/device?user_code=ABCD-EFGH", who)[0] for _ in range(30)}
    assert statuses == {404}
    assert tenants.call("GET", "/auth/device?user_code=ABCD-EFGH", who)[0] == 429


def test_a_configured_dashboard_is_where_the_person_is_sent(make_tenants) -> None:
    with make_tenants(GATEWAY_SECURITY_TRUSTED_ORIGINS="https://app.example.com") as gateway:
        client = gateway.app.flask.test_client()
        sent = {"Origin": "https://app.example.com"}
        grant = client.post("/auth/device/code", json=CLIENT, headers=sent).json
        other = client.post("/auth/device/code", json=CLIENT, headers={"Origin": "https://evil.example"}).json
    assert grant["verification_uri"] == "https://app.example.com/console/device"
    assert other["verification_uri"] == "http://localhost/console/device"


@pytest.mark.parametrize("body", [{}, {"client_id": 7}, {"client_id": ""}], ids=str)
def test_a_request_without_its_client_is_a_400(shared_tenants, body) -> None:
    assert shared_tenants.call("POST", "/auth/device/code", body=body)[0] == 400
