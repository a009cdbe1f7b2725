"""The management API over HTTP: what one worker changes, every worker knows when the answer comes."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from support.gateways import GatewayProcess, LocalGateway, local_gateway
from support.signed_in_owner import ASKS, EMAIL, PASSWORD, SignedInOwner

from gateway.accounts.second_factor import code_at
from gateway.configuration.settings import Settings


@pytest.fixture
def running(process: Callable[..., GatewayProcess]) -> GatewayProcess:
    return process(workers=4, GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)


def test_no_worker_takes_a_rolled_deactivated_or_deleted_key(running: GatewayProcess) -> None:
    desk = SignedInOwner(running.address)
    key = desk.make_key()
    assert desk.statuses_of_calls(key["token"]) == {200}
    fresh = desk("POST", f"/keys/api/{key['id']}/roll")["apiKey"]["token"]
    assert desk.statuses_of_calls(key["token"]) == {401} and desk.statuses_of_calls(fresh) == {200}
    desk("PATCH", f"/keys/api/{key['id']}", {"status": "inactive"})
    assert desk.statuses_of_calls(fresh) == {401}
    desk("PATCH", f"/keys/api/{key['id']}", {"status": "active"})
    assert desk.statuses_of_calls(fresh) == {200}
    desk("DELETE", f"/keys/api/{key['id']}")
    assert desk.statuses_of_calls(fresh) == {401}


def test_no_worker_knows_a_session_that_was_ended(running: GatewayProcess) -> None:
    desk, second_owner = SignedInOwner(running.address), SignedInOwner(running.address)
    desk("POST", "/auth/sign-out", {})
    headers = {**desk.web.headers, "Connection": "close"}
    statuses = {requests.get(f"{running.address}/orgs", headers=headers, timeout=20).status_code for _ in range(ASKS)}
    assert statuses == {401} and second_owner("GET", "/orgs")


@pytest.fixture(params=["sqlite", "postgresql"])
def gateway(request: pytest.FixtureRequest, settings: Callable[..., Settings]) -> Iterator[LocalGateway]:
    """On both stores in turn."""
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    if request.param == "postgresql":
        environment |= {
            "DATABASE_URL": request.getfixturevalue("postgresql_url"),
            "GATEWAY_API_KEY_HASH_SECRET": "a hash secret of the tests",
            "GATEWAY_ENCRYPTION_KEY": "an encryption key of the tests",
        }
    with local_gateway(settings, **environment) as found:
        yield found


def test_a_key_is_used_up_to_its_limit_and_all_books_agree(gateway: LocalGateway) -> None:
    desk = SignedInOwner(gateway.address)
    key = desk.make_key(usageLimit="0.5")
    headers = {"Authorization": f"Bearer {key['token']}", "x-source": "flow"}
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]}
    for _ in range(5):
        requests.post(f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=20).raise_for_status()
    listed_key = next(one for one in desk("GET", "/keys/api")["apiKeys"] if one["id"] == key["id"])
    gateway.services.billing.rollups.catch_up()
    days = desk("GET", f"/activity?apiKeyId={key['id']}&groupBy=apiKey&timeRange=24h")["activity"]
    assert sum(day["requestCount"] for day in days) == 5
    assert float(listed_key["usage"]) == pytest.approx(sum(day["cost"] for day in days), abs=1e-12) != 0
    desk("PATCH", f"/keys/api/limit/{key['id']}", {"usageLimit": "0"})
    refused = requests.post(f"{gateway.url}/chat/completions", json=body, headers=headers, timeout=20)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "key_limit_reached")


def test_everything_that_was_done_is_in_a_chain_that_verifies(gateway: LocalGateway) -> None:
    desk = SignedInOwner(gateway.address)
    key = desk.make_key()
    organization = desk("GET", "/orgs")["organizations"][0]["id"]
    provider_key = {"organizationId": organization, "provider": "openai", "token": "sk-a-secret-of-the-provider-1234"}
    desk("POST", "/keys/provider", provider_key)
    desk("DELETE", f"/keys/api/{key['id']}")
    entries = desk("GET", f"/orgs/{organization}/audit")["entries"]
    actions = ["api_key.delete", "project.update", "provider_key.create", "api_key.create"]
    assert [entry["action"] for entry in entries[:4]] == actions
    assert key["token"] not in str(entries) and "sk-a-secret" not in str(entries)
    assert desk("GET", f"/orgs/{organization}/audit/verify")["valid"] is True


def test_the_log_of_requests_holds_no_token_of_an_invitation(process: Callable[..., GatewayProcess]) -> None:
    running = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD, GATEWAY_SERVER_ACCESS_LOG="true")
    desk = SignedInOwner(running.address)
    organization = desk("GET", "/orgs")["organizations"][0]["id"]
    invitation = desk("POST", f"/orgs/{organization}/invitations", {"email": "new@example.com"})["invitation"]
    page = requests.get(invitation["link"], timeout=20)
    assert page.status_code == 200 and page.url == f"{running.address}/console/invitation"
    assert "/console/invitation" in running.log() and invitation["token"] not in running.log()


def test_second_factors_sessions_and_owners_of_limits_work_on_both_stores(gateway: LocalGateway) -> None:
    desk, second_owner = SignedInOwner(gateway.address), SignedInOwner(gateway.address)
    key = desk.make_key(usageLimit="0.5")
    desk("PATCH", f"/keys/api/limit/{key['id']}", {"usageLimit": "5"})
    desk("PATCH", f"/keys/api/limit/{key['id']}", {"usageLimit": None})
    assert len(desk("GET", "/auth/sessions")["sessions"]) >= 2
    secret = base64.b32decode(desk("POST", "/auth/second-factor", {"password": PASSWORD})["secret"])

    def code(ahead: int = 0) -> str:
        return code_at(secret, gateway.services.store.database.now_us() // 30_000_000 + ahead)

    codes = desk("POST", "/auth/second-factor/confirm", {"code": code(-1)})["recoveryCodes"]
    assert second_owner.web.get(f"{gateway.address}/orgs", timeout=20).status_code == 401
    statuses = []
    for code_text in (None, code(), codes[0], codes[0]):
        body = {"email": EMAIL, "password": PASSWORD} | ({"code": code_text} if code_text else {})
        statuses.append(requests.post(f"{gateway.address}/auth/sign-in/email", json=body, timeout=20).status_code)
    assert statuses == [401, 200, 200, 401]
    desk("POST", "/auth/second-factor/remove", {"password": PASSWORD, "code": codes[1]})
    desk("POST", "/auth/sign-out-everywhere", {})
    assert desk.web.get(f"{gateway.address}/orgs", timeout=20).status_code == 401


def test_new_projects_begin_as_the_operators_file_says(settings: Callable[..., Settings], tmp_path: Path) -> None:
    configuration = '[organizations]\nproject_mode = "hybrid"\ncaching = true\ncache_ttl_s = 90\nretention_days = 7\n'
    (tmp_path / "gateway.toml").write_text(configuration)
    named = {"GATEWAY_CONFIG": str(tmp_path / "gateway.toml"), "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    with local_gateway(settings, **named) as gateway:
        desk = SignedInOwner(gateway.address)
        first = desk("GET", "/orgs")["organizations"][0]["id"]
        second = desk("POST", "/orgs", {"name": "Second"})["organization"]["id"]
        unsaid = desk("POST", "/projects", {"organizationId": second, "name": "Unsaid"})["project"]
        assert (unsaid["mode"], unsaid["retentionDays"]) == ("hybrid", 7)
        desk("POST", "/projects", {"organizationId": second, "name": "Said", "mode": "api-keys"})
        found = [project for ident in (first, second) for project in desk("GET", f"/orgs/{ident}/projects")["projects"]]
    assert [one["mode"] for one in found] == ["hybrid", "hybrid", "hybrid", "api-keys"]
    assert {(one["cachingEnabled"], one["cacheDurationSeconds"]) for one in found} == {(True, 90)}
    assert {(one["retention"], one["retentionDays"]) for one in found} == {("none", 7)}
