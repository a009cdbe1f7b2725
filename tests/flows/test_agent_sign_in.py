"""A coding agent signs in as a device: its tokens, where they are valid, and their end."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import httpx
import pytest
from fakes.otlp import FakeCollector
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from support.gateways import GatewayProcess
from support.oauth import PASSWORD, App, Person, owner_of
from support.shared import Share, Tenant
from support.signed_in_owner import EMAIL, SignedInOwner
from support.worker_connections import open_lines

from gateway.accounts import keys, managed_settings, teams
from gateway.accounts.members import add_member
from gateway.accounts.projects import create_project
from gateway.admin.agent_sign_in import KEY_NAME
from gateway.limits.budgets import Limits
from gateway.limits.models import MEMBER, WINDOW, budget_id
from gateway.limits.periods import read_period
from gateway.oauth import grants as grants_module

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
ASK = {"model": "openai/gpt-4o-mini", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]}
BY = {"actor": "test"}
WAIT_S = 60
Json = dict[str, Any]


class Agent:
    """A coding agent that knows only the gateway's address."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.web = httpx.Client(timeout=30)
        self.document = self.web.get(f"{base}/.well-known/oauth-authorization-server").json()
        self.device: Json = {}
        self.tokens: Json = {}

    def request_code(self) -> Json:
        answer = self.web.post(self.document["device_authorization_endpoint"], data={"surface": "claude_code"})
        assert answer.status_code == 200, answer.text
        self.device = answer.json()
        return self.device

    def poll(self) -> httpx.Response:
        return self.token(grant_type=GRANT, device_code=self.device["device_code"])

    def token(self, **fields: str) -> httpx.Response:
        assert fields["grant_type"] in self.document["grant_types_supported"]
        return self.web.post(self.document["token_endpoint"], data=fields)

    def refresh(self, token: str) -> httpx.Response:
        return self.token(grant_type="refresh_token", refresh_token=token)

    def revoke(self, token: str, **more: str) -> int:
        return self.web.post(self.document["revocation_endpoint"], data={"token": token, **more}).status_code

    def sign_in(self, person: Person, **choice: str) -> Json:
        self.request_code()
        page = person.open(self.device["verification_uri_complete"])
        answer = person.submit(page, decision="approve", **choice)
        assert answer.status_code == 200 and "signed in" in answer.text, answer.text
        self.tokens = self.poll().json()
        return self.tokens

    def get(self, path: str, token: str = "", **headers: str) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {token or self.tokens['access_token']}"}
        return self.web.get(self.base + path, headers=bearer | headers)

    def post(self, path: str, token: str = "", **more: Any) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {token or self.tokens['access_token']}"}
        return self.web.post(self.base + path, headers=bearer | more.pop("headers", {}), **more)


@pytest.fixture
def person(gateway: Tenant) -> Person:
    return owner_of(gateway)


@pytest.fixture
def agent(gateway: Tenant) -> Agent:
    return Agent(gateway.address)


def stores(gateway: Tenant) -> tuple[Any, Any]:
    return gateway.services.store.database, gateway.services.store.control


def owner_id(gateway: Tenant) -> str:
    return gateway.services.accounts.authentication.caller(gateway.key).user_id


def test_an_agent_signs_in_without_a_key_and_calls_models(gateway: Tenant, agent: Agent, person: Person) -> None:
    device = agent.request_code()
    assert re.fullmatch(r"[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}", device["user_code"])
    pending = agent.poll()
    assert (pending.status_code, pending.json()["error"]) == (400, "authorization_pending")
    assert agent.poll().json()["error"] == "slow_down"
    tokens = agent.sign_in(person)
    assert tokens["token_type"] == "Bearer" and tokens["expires_in"] == 3600 and tokens["email"] == person.email
    assert "llmgtwy_" not in json.dumps(tokens)
    assert agent.poll().json()["error"] == "expired_token"
    assert agent.post("/v1/messages", json=ASK).status_code == 200
    assert agent.post("/v1/messages/count_tokens", json=ASK).json()["input_tokens"] > 0
    assert agent.get("/v1/models").status_code == 200
    (key,) = [
        key
        for key in keys.list_keys(gateway.services.store.database, organization_id=gateway.organization_id)
        if key.description == KEY_NAME
    ]
    again = Agent(gateway.address)
    again.sign_in(person)
    grants = gateway.services.accounts.oauth.grants.list_grants(key_id=key.id)
    assert [grant.client_name for grant in grants] == ["Claude Code"] * 2


def test_a_token_of_an_agent_is_refused_outside_its_paths(gateway: Tenant, agent: Agent, person: Person) -> None:
    agent.sign_in(person)
    for path in ("/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/mcp", "/v1/messages/other"):
        assert agent.post("/v1/messages", json=ASK).status_code == 200
        answer = agent.post(path, json=ASK)  # on the same connection, for which the sender may be cached
        assert answer.status_code in (401, 404), (path, answer.text)
    for path in ("/v1/key", "/keys/api", "/auth/get-session", "/orgs", "/v1/models/gpt-4o-mini", "/metrics"):
        answer = agent.get(path)
        assert answer.status_code in (401, 404) or answer.json() is None, (path, answer.text)


def test_tokens_of_applications_are_refused_at_the_paths_of_agents(gateway: Tenant, person: Person) -> None:
    app = App(gateway.address)
    token = app.connect(person)["access_token"]
    agent = Agent(gateway.address)
    assert agent.post("/v1/messages", token, json=ASK).status_code == 401
    assert agent.get("/managed/settings", token).status_code == 401
    assert agent.get("/v1/models", token).status_code == 401


def test_a_refresh_token_rotates_and_a_replay_ends_the_chain(
    gateway: Tenant, agent: Agent, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agent.sign_in(person)
    second = agent.refresh(first["refresh_token"]).json()
    assert second["refresh_token"] != first["refresh_token"] and second["expires_in"] == 3600
    assert agent.get("/v1/models", second["access_token"]).status_code == 200
    third = agent.refresh(second["refresh_token"]).json()
    monkeypatch.setattr(grants_module, "REUSE_WINDOW_S", 0)
    stolen = agent.refresh(first["refresh_token"])
    assert (stolen.status_code, stolen.json()["error"]) == (401, "invalid_grant")
    for tokens in (first, second, third):
        answer = agent.get("/v1/models", tokens["access_token"])
        assert answer.status_code == 401 and answer.headers["x-should-retry"] == "false"
        assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_refresh_tokens_of_agents_and_applications_are_not_mixed_up(
    gateway: Tenant, agent: Agent, person: Person
) -> None:
    tokens = agent.sign_in(person)
    app = App(gateway.address)
    own = app.connect(person)
    assert app.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert agent.refresh(own["refresh_token"]).json()["error"] == "invalid_client"
    assert agent.revoke(own["access_token"]) == 401
    assert agent.refresh(tokens["access_token"]).json()["error"] == "invalid_grant"
    assert agent.get("/v1/models", tokens["access_token"]).status_code == 200
    assert app.refresh(own["refresh_token"]).status_code == 200


def test_an_agent_signs_out(gateway: Tenant, agent: Agent, person: Person) -> None:
    tokens = agent.sign_in(person)
    assert agent.revoke(tokens["access_token"]) == 200
    assert agent.get("/v1/models").status_code == 401
    assert agent.revoke(tokens["refresh_token"], token_type_hint="refresh_token") == 200
    assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_deactivating_its_key_ends_a_sign_in(gateway: Tenant, agent: Agent, person: Person) -> None:
    tokens = agent.sign_in(person)
    (grant,) = gateway.services.accounts.oauth.grants.list_grants(user_id=owner_id(gateway))
    keys.update(*stores(gateway), grant.key_id, keys.Change("deactivate"), **BY)
    assert agent.get("/v1/models").status_code == 401
    assert agent.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_denied_sign_in_gives_nothing(gateway: Tenant, agent: Agent, person: Person) -> None:
    agent.request_code()
    person.submit(person.open(agent.device["verification_uri_complete"]), decision="deny")
    assert agent.poll().json()["error"] == "access_denied"


def test_a_code_of_an_agent_gives_no_session(gateway: Tenant, agent: Agent, person: Person) -> None:
    """A session may do everything that the person may; the page of an agent promises much less."""
    agent.request_code()
    person.submit(person.open(agent.device["verification_uri_complete"]), decision="approve")
    body = {"grant_type": GRANT, "device_code": agent.device["device_code"], "client_id": "llmgateway-cli"}
    assert agent.web.post(f"{gateway.address}/auth/device/token", json=body).json()["error"] == "expired_token"
    named = {**body, "client_id": "claude-code"}
    assert agent.web.post(f"{gateway.address}/auth/device/token", json=named).json()["error"] == "invalid_client"
    assert agent.poll().status_code == 200


def test_a_code_of_the_command_line_client_gives_no_tokens(gateway: Tenant, agent: Agent, person: Person) -> None:
    start = agent.web.post(f"{gateway.address}/auth/device/code", json={"client_id": "llmgateway-cli"}).json()
    person.submit(person.open(start["verification_uri_complete"]), decision="approve")
    answer = agent.token(grant_type=GRANT, device_code=start["device_code"])
    assert answer.json()["error"] == "expired_token"


@pytest.mark.parametrize("choice", ["project", "team", "foreign-team"])
def test_foreign_projects_and_teams_cannot_be_chosen(
    gateway: Tenant, agent: Agent, person: Person, choice: str
) -> None:
    services = gateway.services
    organization_id, project_id, _ = gateway.settle(f"other-{choice}", 0)
    given = {"project": gateway.project_id, "team": ""}
    if choice == "project":
        given["project"] = project_id
    elif choice == "team":
        given["team"] = teams.create_team(*stores(gateway), gateway.organization_id, "Without them", **BY).id
    else:
        member = add_member(*stores(gateway), organization_id, person.email, "developer", **BY)
        team = teams.create_team(*stores(gateway), organization_id, "Elsewhere", **BY)
        teams.set_team_member(*stores(gateway), team.id, member.id, True, **BY)
        given["team"] = team.id
    agent.request_code()
    page = person.open(agent.device["verification_uri_complete"])
    answer = person.submit(page, decision="approve", **given)
    assert "not a member" in answer.text
    assert agent.poll().json()["error"] == "authorization_pending"
    assert not services.accounts.oauth.grants.list_grants(user_id=owner_id(gateway))


def test_the_api_approves_with_a_project_and_a_team(gateway: Tenant, agent: Agent, person: Person) -> None:
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    create_project(*stores(gateway), gateway.organization_id, "Second", **BY)
    team = teams.create_team(*stores(gateway), gateway.organization_id, "Research", **BY)
    teams.set_team_member(*stores(gateway), team.id, caller.member_id, True, **BY)
    body = {"email": person.email, "password": PASSWORD}
    token = agent.web.post(f"{gateway.address}/auth/sign-in/email", json=body).json()["token"]
    approve = f"{gateway.address}/auth/device/approve"
    headers = {"Authorization": f"Bearer {token}"}
    code = {"userCode": agent.request_code()["user_code"]}
    unclear = agent.web.post(approve, json=code, headers=headers)
    assert unclear.status_code == 400 and unclear.json()["param"] == "projectId"
    chosen = {**code, "projectId": gateway.project_id, "teamId": team.id}
    assert agent.web.post(approve, json=chosen, headers=headers).status_code == 200
    agent.tokens = agent.poll().json()
    managed_settings.set_settings(*stores(gateway), gateway.organization_id, team.id, {"model": "of the team"}, **BY)
    assert agent.get("/managed/settings").json()["settings"] == {"model": "of the team"}


def test_managed_settings_have_an_etag_and_are_sent_once(gateway: Tenant, agent: Agent, person: Person) -> None:
    agent.sign_in(person)
    missing = agent.get("/managed/settings")
    assert missing.status_code == 404 and missing.json()["type"] == "error"
    organization_id = gateway.organization_id
    managed_settings.set_settings(*stores(gateway), organization_id, organization_id, {"env": {"A": "1"}}, **BY)
    answer = agent.get("/managed/settings")
    document = answer.json()
    assert sorted(document) == ["checksum", "settings", "uuid"] and document["settings"] == {"env": {"A": "1"}}
    etag = answer.headers["etag"]
    assert etag == f'"{document["checksum"]}"' and "no-store" in answer.headers["cache-control"]
    unchanged = agent.get("/managed/settings", **{"If-None-Match": etag})
    assert unchanged.status_code == 304 and unchanged.headers["etag"] == etag and not unchanged.content
    assert agent.get("/managed/settings", **{"If-None-Match": "*"}).status_code == 200
    assert agent.get("/managed/settings", gateway.key).json() == document
    managed_settings.set_settings(*stores(gateway), organization_id, organization_id, {"env": {"A": "2"}}, **BY)
    assert agent.get("/managed/settings", **{"If-None-Match": etag}).status_code == 200
    assert agent.web.get(f"{gateway.address}/managed/settings").status_code == 401


@pytest.fixture
def collector(share: Share) -> Iterator[FakeCollector]:
    yield share.fake(FakeCollector)


@pytest.fixture
def observed(share: Share, collector: FakeCollector) -> Tenant:
    """A gateway with a collector."""
    return share.gateway({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address})


def make_logs() -> bytes:
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    group.resource.attributes.add(key="llmgateway.user.email").value.string_value = "other@example.com"
    group.scope_logs.add().log_records.add().body.string_value = "claude_code.user_prompt"
    return request.SerializeToString()


def test_telemetry_is_forwarded_with_the_person_and_the_organization(
    observed: Tenant, collector: FakeCollector
) -> None:
    agent = Agent(observed.address)
    person = owner_of(observed)
    agent.sign_in(person)
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    answer = agent.post("/v1/logs", content=gzip.compress(make_logs()), headers=headers)
    assert answer.status_code == 200 and not answer.content
    assert answer.headers["content-type"] == "application/x-protobuf"

    def own() -> list[Json]:
        mine = observed.organization_id
        return [
            resource for resource in collector.agent_resources if resource.get("llmgateway.organization.id") == mine
        ]

    with gevent.Timeout(WAIT_S):
        while not own():
            gevent.sleep(0.02)
    (resource,) = own()
    assert resource["llmgateway.user.email"] == person.email
    assert resource["llmgateway.project.id"] == observed.project_id
    assert "llmgateway.team.id" not in resource


@pytest.mark.parametrize("signal", ["metrics", "logs", "traces"])
def test_telemetry_is_accepted_without_a_collector(gateway: Tenant, agent: Agent, person: Person, signal: str) -> None:
    agent.sign_in(person)
    answer = agent.post(f"/v1/{signal}", json={"resourceLogs": []})
    assert (answer.status_code, answer.json()) == (200, {})


def test_telemetry_is_limited_and_needs_a_token(observed: Tenant) -> None:
    agent = Agent(observed.address)
    protobuf = {"Content-Type": "application/x-protobuf"}
    assert agent.post("/v1/logs", observed.key, content=b"x" * (5 << 20), headers=protobuf).status_code == 413
    packed = gzip.compress(b"\0" * (50 << 20))
    bomb = agent.post("/v1/logs", observed.key, content=packed, headers={**protobuf, "Content-Encoding": "gzip"})
    assert bomb.status_code == 413
    assert agent.post("/v1/logs", observed.key, content=b"\xff", headers=protobuf).status_code == 400
    assert agent.post("/v1/logs", observed.key, content=b"x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert agent.post("/v1/logs", "llmgat_" + "0" * 40, content=b"", headers=protobuf).status_code == 401


def test_a_revoked_sign_in_is_refused_by_every_worker(process: Callable[..., GatewayProcess]) -> None:
    gateway = process(workers=2, GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    agent = Agent(gateway.address)
    token = agent.sign_in(Person(gateway.address, EMAIL))["access_token"]
    lines = open_lines(gateway)
    assert {line.post("/v1/messages/count_tokens", ASK, token)[0] for line in lines} == {200}
    owner = SignedInOwner(gateway.address)
    (application,) = owner("GET", "/auth/applications")["applications"]
    owner("DELETE", f"/auth/applications/{application['id']}")
    assert {line.post("/v1/messages/count_tokens", ASK, token)[0] for line in lines} == {401}


def test_a_session_that_single_sign_on_shuts_out_cannot_choose_the_organization(
    gateway: Tenant, agent: Agent, person: Person
) -> None:
    """An organization that requires single sign-on is no choice for a person who signed in with a password."""
    other_id, other_project, _ = gateway.settle("requires-sso", 0)
    add_member(*stores(gateway), other_id, person.email, "developer", **BY)
    database = gateway.services.store.database
    sql = "UPDATE organization SET sso_required = ? WHERE id = ?"
    database.write(lambda: database.execute(sql, (True, other_id)))
    agent.request_code()
    page = person.open(agent.device["verification_uri_complete"])
    assert gateway.project_id in page.text and other_project not in page.text
    refused = person.submit(page, decision="approve", project=other_project)
    assert "not a member" in refused.text
    assert agent.poll().json()["error"] == "authorization_pending"


UNIFIED = "anthropic-ratelimit-unified-"


def set_limit(gateway: Tenant, used_nusd: int, limit_nusd: int | None) -> str:
    """Give the owner a monthly limit that is used in part; return the time of its reset in seconds."""
    services = gateway.services
    database = services.store.database
    caller = services.accounts.authentication.caller(gateway.key)
    period = read_period("1mo")
    limits = Limits(period_nusd=limit_nusd, period=period if limit_nusd is not None else None)
    services.billing.budgets.set_limits(MEMBER, caller.member_id, limits)
    start = database.now_us()
    sql = "UPDATE budget SET settled_nusd = ?, window_start = ? WHERE id = ?"
    place = (used_nusd, start, budget_id(caller.member_id, WINDOW))
    database.write(lambda: database.execute(sql, place))
    return str(period.end(start) // 1_000_000)


def unified(answer: httpx.Response) -> Json:
    return {name[len(UNIFIED) :]: text for name, text in answer.headers.items() if name.startswith(UNIFIED)}


def test_an_agent_sees_how_much_of_a_limit_is_used(gateway: Tenant, agent: Agent, person: Person) -> None:
    agent.sign_in(person)
    assert unified(agent.post("/v1/messages", json=ASK)) == {}
    assert agent.get("/api/oauth/usage").json() == {"limits": []}
    resets = set_limit(gateway, 82 * 10**9, 100 * 10**9)
    limits = unified(agent.post("/v1/messages", json=ASK))
    assert limits == {
        "status": "allowed_warning",
        "representative-claim": "overage",
        "overage-status": "allowed_warning",
        "overage-utilization": "0.82",
        "overage-surpassed-threshold": "0.75",
        "reset": resets,
        "overage-reset": resets,
    }
    usage = agent.get("/api/oauth/usage")
    assert "no-store" in usage.headers["cache-control"]
    extra, (row,) = usage.json()["extra_usage"], usage.json()["limits"]
    assert (extra["monthly_limit"], round(extra["used_credits"]), extra["utilization"]) == (10_000, 8_200, 82)
    assert (row["group"], row["percent"], row["severity"], row["is_active"]) == ("monthly", 82, "warning", True)
    assert unified(agent.post("/v1/messages", gateway.key, json=ASK)) == {}


def test_an_agent_at_its_limit_does_not_retry(gateway: Tenant, agent: Agent, person: Person) -> None:
    agent.sign_in(person)
    resets = set_limit(gateway, 10**9, 10**9)
    answer = agent.post("/v1/messages", json=ASK)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (429, "billing_error", "member_limit_reached")
    assert "resets at" in error["message"] and answer.headers["x-should-retry"] == "false"
    assert int(answer.headers["retry-after"]) > 86_400
    assert unified(answer) == {
        "status": "rejected",
        "reset": resets,
        "overage-reset": resets,
        "overage-utilization": "1",
        "overage-surpassed-threshold": "1",
        "overage-period": "monthly",
        "overage-disabled-reason": "org_spend_cap_reached",
    }
    by_key = agent.post("/v1/messages", gateway.key, json=ASK)
    assert by_key.status_code == 402 and unified(by_key) == {}
