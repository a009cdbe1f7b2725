"""An owner, or another member, who signs in at a gateway and manages it over HTTP."""

from typing import Any

import requests

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
ASKS = 24  # new connections, so that the kernel spreads them over the workers


class SignedInOwner:
    """The signed-in owner, or the member with another email and the same password."""

    def __init__(self, address: str, email: str = EMAIL) -> None:
        self.address = address
        self.web = requests.Session()
        body = {"email": email, "password": PASSWORD}
        token = self.web.post(f"{address}/auth/sign-in/email", json=body, timeout=20).json()["token"]
        self.web.headers["Authorization"] = f"Bearer {token}"

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.web.request(method, self.address + path, json=body, timeout=20)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def add_member(self, organization: str, email: str, role: str) -> "SignedInOwner":
        """Invite a person, accept the invitation, and return them signed in."""
        invited = self("POST", f"/orgs/{organization}/invitations", {"email": email, "role": role})
        body = {"token": invited["invitation"]["token"], "password": PASSWORD, "name": email}
        signed_up = requests.post(f"{self.address}/auth/sign-up/email", json=body, timeout=20)
        assert signed_up.status_code < 300, signed_up.text
        return SignedInOwner(self.address, email)

    def make_key(self, **more: Any) -> dict[str, Any]:
        organization = self("GET", "/orgs")["organizations"][0]
        project = self("GET", f"/orgs/{organization['id']}/projects")["projects"][0]
        return self("POST", "/keys/api", {"description": "CI", "projectId": project["id"], **more})["apiKey"]

    def statuses_of_calls(self, token: str) -> set[int]:
        """Return the statuses of requests with this key, each over a new connection."""
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        return {requests.get(f"{self.address}/v1/key", headers=headers, timeout=20).status_code for _ in range(ASKS)}
