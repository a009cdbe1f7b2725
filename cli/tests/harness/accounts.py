"""An organization on a gateway, seen by the tests through the management API."""

from typing import Any

import requests
from support.gateways import LocalGateway

from gateway.accounts.members import add_member, list_members
from gateway.callers.permissions import Role

TIMEOUT_S = 20


class Account:
    """An organization and its owner's session. `key` is an API key of its project."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        self.address = gateway.address
        self.key = gateway.key
        self.organization_id = gateway.organization_id
        self.project_id = gateway.project_id
        owner = list_members(gateway.services.store.database, organization_id=gateway.organization_id)[0]
        self.email = owner.email
        self.user_id = owner.user_id
        self.token = gateway.services.management.sessions.open(owner.user_id).token

    def __call__(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """Return the answer of the management API to the owner, or to the session of `token`."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        answer = requests.request(method, self.address + path, json=body, headers=headers, timeout=TIMEOUT_S)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def colleague(self, name: str, role: Role = "developer") -> str:
        """Add a member of this role, and return the token of their session."""
        services = self.gateway.services
        email = f"{name}-{self.organization_id}@example.com"
        member = add_member(
            services.store.database, services.store.control, self.organization_id, email, role, actor="test"
        )
        return services.management.sessions.open(member.user_id).token

    def list_keys(self) -> dict[str, dict[str, Any]]:
        """Return the keys of the project that are not deleted, by description."""
        listed = self("GET", f"/keys/api?projectId={self.project_id}&filter=all")["apiKeys"]
        return {key["description"]: key for key in listed if key["status"] != "deleted"}

    def make_key(self, description: str, **more: Any) -> dict[str, Any]:
        body = {"description": description, "projectId": self.project_id, **more}
        key: dict[str, Any] = self("POST", "/keys/api", body)["apiKey"]
        return key

    def key_works(self, token: str) -> bool:
        """Return whether the inference API accepts a token."""
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{self.address}/v1/key", headers=headers, timeout=TIMEOUT_S).status_code == 200

    def use_model(self, count: int = 1, **headers: str) -> None:
        """Call a model of the sandbox, and let the statistics catch up."""
        body = {"model": "auto", "messages": [{"role": "user", "content": "Hello!"}]}
        own = {"Authorization": f"Bearer {self.key}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        for _ in range(count):
            url = f"{self.address}/v1/chat/completions"
            requests.post(url, json=body, headers=own, timeout=TIMEOUT_S).raise_for_status()
        self.gateway.services.billing.rollups.catch_up()
