"""An identity provider that manages an organization of a gateway over SCIM."""

import itertools
from typing import Any

import requests
from support.gateways import LocalGateway

from gateway.accounts import members

MEDIA = "application/scim+json"
PATCH_URN = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
USER_URN = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_URN = "urn:ietf:params:scim:schemas:core:2.0:Group"
_numbers = itertools.count(1)


class IdentityProvider:
    """Requests with a SCIM token. A call returns the body of a response with the expected status."""

    def __init__(self, address: str, token: str) -> None:
        self.url = f"{address}/scim/v2"
        self.token = token
        self._web = requests.Session()

    @classmethod
    def of(cls, gateway: LocalGateway, organization_id: str, by_owner: bool = True) -> "IdentityProvider":
        """Return the identity provider of an organization, with a new token."""
        token = gateway.services.accounts.scim_tokens.create(
            organization_id, "Identity provider", by_owner=by_owner, actor="operator"
        )
        return cls(gateway.address, token.token)

    def __call__(self, method: str, path: str, body: Any = None, status: int = 0, **headers: str) -> Any:
        """Send a request; without `status`, any success is expected."""
        answer = self.send(method, path, body, **headers)
        expected = status or {"POST": 201, "DELETE": 204}.get(method, 200)
        assert answer.status_code == expected, (method, path, answer.status_code, answer.text[:500])
        if answer.status_code in (204, 304):
            assert answer.content == b""
            return None
        assert answer.headers["Content-Type"] == MEDIA
        return answer.json()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": MEDIA}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self._web.request(method, self.url + path, json=body, headers=sent, timeout=60)

    def patch(self, path: str, *operations: dict[str, Any], status: int = 200, **headers: str) -> Any:
        return self("PATCH", path, {"schemas": [PATCH_URN], "Operations": list(operations)}, status, **headers)

    def find(self, kind: str, text: str) -> list[Any]:
        """Return the resources that fulfil a filter."""
        found = self._web.get(
            f"{self.url}/{kind}",
            params={"filter": text},
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=60,
        ).json()
        assert found["totalResults"] == len(found["Resources"]), found
        return found["Resources"]

    def new_user(self, **more: Any) -> Any:
        """Create a user with an address that no other test uses."""
        address = f"person-{next(_numbers)}@corp.example"
        emails = [{"value": address, "type": "work", "primary": True}]
        return self("POST", "/Users", {"schemas": [USER_URN], "userName": address, "emails": emails, **more})

    def new_group(self, name: str, *member_ids: str) -> Any:
        members_of_group = [{"value": member_id} for member_id in member_ids]
        return self("POST", "/Groups", {"schemas": [GROUP_URN], "displayName": name, "members": members_of_group})


def add_member(gateway: LocalGateway, organization_id: str, email: str, role: Any = "developer") -> members.MemberInfo:
    """Add a member by hand."""
    store = gateway.services.store
    return members.add_member(store.database, store.control, organization_id, email, role, actor="operator")
