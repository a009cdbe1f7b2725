"""Routes that tests publish, and requests for them."""

from typing import Any

import httpx as http
from support.gateways import LocalGateway

from gateway.accounts import route_changes
from gateway.routes.route_document import read_document


class Routes:
    """Publishes routes of the organization of a gateway."""

    def __init__(self, gateway: LocalGateway) -> None:
        self._stores = (gateway.services.store.database, gateway.services.store.control)
        self._organization = gateway.organization_id
        self.names: set[str] = set()

    def publish(self, name: str, document: dict[str, Any], *aliases: str, project: str = "") -> None:
        route_changes.put_route(
            *self._stores, self._organization, name, read_document(document), aliases, project, actor="operator"
        )
        self.names.add(name)
        route_changes.publish_route(*self._stores, self._organization, name, None, actor="operator")

    def roll_back(self, name: str, version: int) -> None:
        route_changes.publish_route(*self._stores, self._organization, name, version, actor="operator")

    def clear(self) -> None:
        for name in self.names:
            route_changes.delete_route(*self._stores, self._organization, name, actor="operator")


def post(gateway: LocalGateway, path: str, body: dict[str, Any], **headers: str) -> Any:
    own = {"Authorization": f"Bearer {gateway.key}", **headers}
    return http.post(f"{gateway.address}{path}", json=body, headers=own, timeout=60)
