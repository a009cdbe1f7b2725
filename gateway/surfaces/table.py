"""Every operation of the product, by surface: the one list that blueprints, express lane and description share."""

from gateway.surfaces import health
from gateway.surfaces.anthropic import routes as messages
from gateway.surfaces.exchange import Operation
from gateway.surfaces.openai import chat, explain, models
from gateway.surfaces.responses import routes as responses

SURFACES: dict[str, tuple[Operation, ...]] = {
    "health": health.OPERATIONS,
    "chat": chat.OPERATIONS,
    "messages": messages.OPERATIONS,
    "responses": responses.OPERATIONS,
    "models": models.OPERATIONS,
    "routing": explain.OPERATIONS,
}


def operations() -> list[Operation]:
    """All of them in one list."""
    return [operation for table in SURFACES.values() for operation in table]
