"""SCIM against confusion of credentials, other organizations, hostile inputs and concurrent changes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from support.gateways import LocalGateway
from support.scim_client import MEDIA, IdentityProvider, add_member
from support.shared import Tenant

from gateway.accounts import identities, members
from gateway.accounts.service_accounts import ServiceAccountDraft
from gateway.surfaces.scim import scim_call

ERROR_URN = "urn:ietf:params:scim:api:messages:2.0:Error"
CHAT = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def directory(gateway: Tenant) -> IdentityProvider:
    return IdentityProvider.of(gateway, gateway.organization_id)


def send(gateway: LocalGateway, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.request(method, gateway.address + path, json=body, headers=named, timeout=60)


def access_token(gateway: LocalGateway) -> str:
    """Return an OAuth access token of the gateway's key."""
    grant = "client_credentials"
    app = {"client_name": "Editor", "grant_types": [grant]}
    registered = send(gateway, "POST", "/oauth/register", app, Authorization=f"Bearer {gateway.key}").json()
    form = {"grant_type": grant, "client_id": registered["client_id"], "client_secret": registered["client_secret"]}
    token: str = send(gateway, "POST", "/oauth/token", form).json()["access_token"]
    return token


def test_scim_takes_no_other_credential(gateway: Tenant) -> None:
    owner = add_member(gateway, gateway.organization_id, f"owner@{gateway.organization_id}.example", "owner")
    management = gateway.services.management
    draft = ServiceAccountDraft("Automation", ["members:read", "members:write", "settings:write"])
    account = management.service_accounts.create(gateway.organization_id, draft, actor=owner.user_id)
    session = management.sessions.open(owner.user_id).token
    for token in (gateway.key, session, access_token(gateway), account.token, "llmgscim_" + "x" * 40, ""):
        for headers in ({"Authorization": f"Bearer {token}"}, {"Cookie": f"llmgateway.session_token={token}"}):
            answer = send(gateway, "GET", "/scim/v2/Users", **headers)
            assert answer.status_code == 401 and answer.json()["schemas"] == [ERROR_URN], token[:12]
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.headers["Content-Type"] == MEDIA


def test_a_scim_token_opens_nothing_else(gateway: Tenant, directory: IdentityProvider) -> None:
    token = directory.token
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/messages", CHAT), ("/mcp", PING), ("/v1/responses", CHAT)):
        for headers in ({"Authorization": f"Bearer {token}"}, {"x-api-key": token}):
            assert send(gateway, "POST", path, body, **headers).status_code == 401, path
    organization = f"/orgs/{gateway.organization_id}"
    for path in (organization, f"{organization}/members", f"{organization}/scim/tokens", "/activity", "/user/me"):
        assert send(gateway, "GET", path, Authorization=f"Bearer {token}").status_code == 401, path
        assert send(gateway, "GET", path, Cookie=f"llmgateway.session_token={token}").status_code == 401, path
    app = {"client_name": "Editor", "grant_types": ["client_credentials"]}
    assert send(gateway, "POST", "/oauth/register", app, Authorization=f"Bearer {token}").status_code == 401
    page = requests.get(
        f"{gateway.address}/console/people",
        headers={"Cookie": f"llmgateway.session_token={token}"},
        allow_redirects=False,
        timeout=60,
    )
    assert page.status_code == 303 and "/console/login" in page.headers["Location"]


def test_a_token_sees_and_changes_its_organization_alone(gateway: Tenant, directory: IdentityProvider) -> None:
    root = members.list_members(gateway.services.store.database)[0]
    other_organization = gateway.services.management.create_organization("Rival", root.user_id, root.email)
    rival = IdentityProvider.of(gateway, other_organization.id)
    person = directory.new_user(externalId="shared", title="Secret title")
    group = directory.new_group("Secret group", person["id"])
    assert rival.find("Users", f'id eq "{person["id"]}" or externalId eq "shared" or title pr') == []
    assert rival.find("Groups", f'displayName eq "Secret group" or members.value eq "{person["id"]}"') == []
    for path in (f"/Users/{person['id']}", f"/Groups/{group['id']}"):
        rival("GET", path, status=404)
        rival.patch(path, {"op": "replace", "path": "displayName", "value": "Stolen"}, status=404)
        rival("PUT", path, {"userName": "stolen@rival.example", "displayName": "Stolen"}, 404)
        rival("DELETE", path, status=404)
    stranger = {"op": "add", "path": "members", "value": [{"value": person["id"]}]}
    own = rival.new_group("Own group")
    rival.patch(f"/Groups/{own['id']}", stranger, status=400)
    # A person of both organizations loses the membership of one.
    guest = rival("POST", "/Users", {"userName": person["userName"]})
    assert guest["id"] != person["id"] and "title" not in guest
    rival("DELETE", f"/Users/{guest['id']}")
    assert directory("GET", f"/Users/{person['id']}")["active"] is True


def sign_up_as(gateway: Tenant, email: str) -> str:
    """Let another organization invite an address and accept the invitation in its place; returns the session."""
    services = gateway.services
    _, _, key = gateway.settle(f"attacker-{gateway.organization_id}", 0)
    attacker = services.accounts.authentication.caller(key)
    inviter = members.list_members(services.store.database, attacker.organization_id)[0].user_id
    invitation = services.management.invitations.invite(attacker.organization_id, email, "developer", actor=inviter)
    body = {"token": invitation.token, "password": "a long enough password", "name": "Mallory"}
    answer = send(gateway, "POST", "/auth/sign-up/email", body)
    assert answer.status_code == 200, answer.text
    session: str = answer.json()["token"]
    return session


def organizations_of(gateway: Tenant, session: str) -> list[str]:
    answer = send(gateway, "GET", "/orgs", Authorization=f"Bearer {session}")
    return [organization["id"] for organization in answer.json()["organizations"]]


def test_an_account_that_another_organization_made_for_an_address_is_not_provisioned(
    gateway: Tenant, directory: IdentityProvider
) -> None:
    address = f"ceo@{gateway.organization_id}.example"
    session = sign_up_as(gateway, address)
    refused = directory("POST", "/Users", {"userName": address}, status=409)
    assert refused["scimType"] == "uniqueness" and "Invite" in refused["detail"]
    assert gateway.organization_id not in organizations_of(gateway, session)
    # The person of the account joins by an invitation of this organization, and can be provisioned then.
    owner = add_member(gateway, gateway.organization_id, f"owner@{gateway.organization_id}.example", "owner")
    invite = gateway.services.management.invitations.invite
    token = invite(gateway.organization_id, address, "developer", actor=owner.user_id).token
    joined = send(gateway, "POST", "/auth/accept-invitation", {"token": token}, Authorization=f"Bearer {session}")
    assert joined.status_code == 200, joined.text
    assert directory("POST", "/Users", {"userName": address})["active"] is True


def test_an_account_with_a_changed_address_and_an_identity_from_outside_is_not_provisioned(
    gateway: Tenant, directory: IdentityProvider
) -> None:
    other_owner, _, _ = gateway.settle(f"renaming-{gateway.organization_id}", 0)
    elsewhere = IdentityProvider.of(gateway, other_owner)
    mallory = elsewhere("POST", "/Users", {"userName": f"mallory@{other_owner}.example"})
    database = gateway.services.store.database
    user_id = database.query_row("SELECT user_id FROM member WHERE id = ?", (mallory["id"],))[0]

    def link() -> None:
        place = (other_owner, "idp_1", "https://issuer.example", "m", user_id, f"mallory@{other_owner}.example")
        identities.insert_identity(*place, actor=user_id, now=1)

    database.write(link)
    address = f"cfo@{gateway.organization_id}.example"
    elsewhere.patch(f"/Users/{mallory['id']}", {"op": "Replace", "path": "userName", "value": address})
    assert database.query_row("SELECT email FROM user WHERE id = ?", (user_id,))[0] == address
    directory("POST", "/Users", {"userName": address}, status=409)


def test_an_account_without_a_sign_in_is_provisioned_by_several_organizations(
    gateway: Tenant, directory: IdentityProvider
) -> None:
    other_owner, _, _ = gateway.settle(f"second-{gateway.organization_id}", 0)
    address = f"both@{other_owner}.example"
    IdentityProvider.of(gateway, other_owner)("POST", "/Users", {"userName": address})
    assert directory("POST", "/Users", {"userName": address})["active"] is True


def test_hostile_bodies_are_refused_with_an_error_of_scim(gateway: Tenant, directory: IdentityProvider) -> None:
    user = f"/Users/{directory.new_user()['id']}"
    group = f"/Groups/{directory.new_group('Hostile')['id']}"
    nested: Any = "x"
    for _ in range(150):
        nested = {"name": nested}
    many = [{"value": f"member_{number}"} for number in range(10_001)]
    rename = {"op": "replace", "path": "title", "value": "x"}
    deep = "(" * 20 + 'value eq "x"' + ")" * 20
    cases: list[tuple[str, str, Any, int]] = [
        ("PATCH", user, {"Operations": [rename] * 1_001}, 400),
        ("PATCH", user, {"Operations": [{"op": "replace", "path": f"emails[{deep}].value", "value": "x"}]}, 400),
        ("PATCH", user, {"Operations": [{"op": "replace", "path": "title", "value": "x" * 100_000}]}, 400),
        ("PATCH", group, {"Operations": [{"op": "add", "path": "members", "value": many}]}, 400),
        ("PUT", group, {"displayName": "x", "members": many}, 400),
        ("PUT", group, {"displayName": "x", "members": [[]] * 70_000}, 413),
        ("PUT", user, {"userName": "x@y.example", "title": "x" * 3_000_000}, 413),
        ("POST", "/Users", {"userName": "no address"}, 400),
        ("POST", "/Users", {"userName": "x@y.example", "emails": [{"value": "x" * 2_000}]}, 400),
        ("POST", "/Users", ["list"], 400),
        ("POST", "/Groups", {}, 400),
        ("POST", "/.search", {"filter": "(" * 1_000}, 400),
        ("POST", "/Bulk", {}, 404),
    ]
    for method, path, body, status in cases:
        answer = directory.send(method, path, body)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text[:300])
        assert answer.headers["Content-Type"] == MEDIA and answer.json()["schemas"] == [ERROR_URN]
        assert len(answer.content) < 4_000
    assert "name" not in directory.patch(user, {"op": "replace", "value": nested})
    assert directory.send("GET", "/Users?filter=" + "(" * 3_000).status_code == 400
    assert directory.send("POST", "/Users", {}, Content_Type="text/plain").status_code == 415
    raw = requests.post(
        f"{directory.url}/Users",
        data=b'{"userName": ',
        headers={"Authorization": f"Bearer {directory.token}", "Content-Type": MEDIA},
        timeout=60,
    )
    assert raw.status_code == 400 and raw.json()["scimType"] == "invalidSyntax"
    # A long body of a stranger is refused before it is read.
    directory.token = "llmgscim_" + "x" * 40
    assert directory.send("PUT", user, {"userName": "x" * 100_000}).status_code == 401


def test_requests_of_a_token_are_limited(
    gateway: Tenant, directory: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scim_call, "REQUESTS", 3)
    answers = [directory.send("GET", "/Users?count=1") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert int(answers[-1].headers["Retry-After"]) >= 1 and answers[-1].json()["status"] == "429"
    another = IdentityProvider.of(gateway, gateway.organization_id)
    assert another.send("GET", "/Users?count=1").status_code == 200


def test_reads_and_searches_are_no_changes(directory: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scim_call, "CHANGES", 0)
    for path in ("/.search", "/Users/.search", "/Groups/.search"):
        assert directory.send("POST", path, {"count": 1}).status_code == 200
    assert directory.send("GET", "/Users?count=1").status_code == 200
    assert directory.send("POST", "/Users", {"userName": "one@more.example"}).status_code == 429


def test_concurrent_changes_of_a_group_lose_no_member(gateway: Tenant, directory: IdentityProvider) -> None:
    people = [directory.new_user()["id"] for _ in range(8)]
    group = f"/Groups/{directory.new_group('Busy')['id']}"

    def join(member_id: str) -> int:
        client = IdentityProvider(gateway.address, directory.token)
        operation = {"op": "add", "path": "members", "value": [{"value": member_id}]}
        return client.send("PATCH", group, {"Operations": [operation]}).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(join, people)) == {200}
    assert {member["value"] for member in directory("GET", group)["members"]} == set(people)


def test_a_large_group_is_replaced_and_its_members_are_listed_once(directory: IdentityProvider) -> None:
    people = [directory.new_user()["id"] for _ in range(120)]
    stated = [{"value": member_id, "type": "User"} for member_id in people]
    group = directory("POST", "/Groups", {"displayName": "Large", "members": stated})
    assert [member["value"] for member in group["members"]] == people
    left = directory("PUT", f"/Groups/{group['id']}", {"displayName": "Large", "members": stated[100:]})
    assert [member["value"] for member in left["members"]] == people[100:]
    (listed,) = directory.find("Groups", 'displayName eq "large" and members pr')
    assert len(listed["members"]) == 20
