"""A team, a webhook, a service account and a workload identity of a small company, for the console's pages."""

from typing import Any

import httpx
from support.gateways import LocalGateway

TEAM = "Customer experience"


def add_demo_organization(gateway: LocalGateway, token: str, members: list[str]) -> None:
    """Add them with the owner's session; `members` are the ids of the team's members."""
    organization = f"/orgs/{gateway.organization_id}"
    with httpx.Client(
        base_url=gateway.address, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
    ) as web:

        def send(method: str, path: str, body: Any = None) -> Any:
            answer = web.request(method, organization + path, json=body)
            assert answer.status_code < 300, answer.text
            return answer.json()

        team = send("POST", "/teams", {"name": TEAM, "usageLimit": "500"})["team"]["id"]
        for member in members:
            send("PUT", f"/teams/{team}/members/{member}")
        send("POST", "/alerts", {"url": "https://hooks.acme.example/llm"})
        send("POST", "/service-accounts", {"name": "Terraform", "scopes": ["keys:write", "usage:read"]})
        identity = {"name": "CI", "projectId": gateway.project_id, "issuer": "https://issuer.example"}
        send("POST", "/workload-identities", {**identity, "claims": {"sub": "repo:acme/*"}, "audience": "acme-llm"})
