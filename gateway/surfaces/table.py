"""Every operation of the product, by surface: the one list that blueprints, express lane and description share."""

from gateway.console import account, connect, invitation
from gateway.surfaces import health, openapi
from gateway.surfaces.anthropic import routes as messages
from gateway.surfaces.exchange import Operation
from gateway.surfaces.management import table as management
from gateway.surfaces.openai import chat, completions, explain, key, models
from gateway.surfaces.responses import routes as responses

UNDESCRIBED = ("description", "console")

SURFACES: dict[str, tuple[Operation, ...]] = {
    "health": health.OPERATIONS,
    "chat": chat.OPERATIONS,
    "completions": completions.OPERATIONS,
    "messages": messages.OPERATIONS,
    "responses": responses.OPERATIONS,
    "models": models.OPERATIONS,
    "routing": explain.OPERATIONS,
    "key": key.OPERATIONS,
    "management": management.OPERATIONS,
    "console": (*account.OPERATIONS, *connect.OPERATIONS, *invitation.OPERATIONS),
    "description": openapi.operations(lambda: described()),
}


def operations() -> list[Operation]:
    """All of them in one list."""
    return [operation for table in SURFACES.values() for operation in table]


def described() -> list[Operation]:
    """Those that the API description lists: what programs call."""
    return [operation for name, table in SURFACES.items() if name not in UNDESCRIBED for operation in table]
