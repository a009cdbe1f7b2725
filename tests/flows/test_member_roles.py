"""A change of a role holds on every worker once the request that made it is answered."""

from collections.abc import Callable

import requests
from support.gateways import GatewayProcess
from support.signed_in_owner import ASKS, PASSWORD, SignedInOwner


def statuses(member: SignedInOwner, path: str) -> set[int]:
    """Return the statuses of a request over many new connections, which reach every worker."""
    headers = {"Authorization": str(member.web.headers["Authorization"]), "Connection": "close"}
    return {requests.get(member.address + path, headers=headers, timeout=20).status_code for _ in range(ASKS)}


def test_a_role_holds_on_every_worker_at_once(process: Callable[..., GatewayProcess]) -> None:
    gateway = process(workers=2, GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    owner = SignedInOwner(gateway.address)
    organization = f"/orgs/{owner('GET', '/orgs')['organizations'][0]['id']}"
    member = owner.add_member(organization.removeprefix("/orgs/"), "ada@example.com", "developer")
    member_id = member("GET", f"{organization}/membership")["membership"]["member"]["id"]
    key = member.make_key()["token"]
    assert member.statuses_of_calls(key) == {200}
    for role, of_keys, of_credits in (("viewer", 403, 403), ("admin", 200, 200), ("billing", 403, 200)):
        owner("PATCH", f"{organization}/members/{member_id}", {"role": role})
        assert member.statuses_of_calls(key) == {of_keys}, role
        assert statuses(member, f"{organization}/credits") == {of_credits}, role
    owner("PATCH", f"{organization}/members/{member_id}", {"role": "developer"})
    team = f"{organization}/teams/{owner('POST', f'{organization}/teams', {'name': 'Search'})['team']['id']}"
    for method, status in (("PUT", 200), ("DELETE", 403)):
        owner(method, f"{team}/leads/{member_id}")
        assert statuses(member, team) == {status}
