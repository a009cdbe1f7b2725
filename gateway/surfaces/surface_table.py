"""The surfaces of the product: the list from which blueprints, express lane, error formats and description are
derived."""

from collections.abc import Iterable

from gateway.configuration.settings import SettingsError
from gateway.surfaces import health, metrics, openapi
from gateway.surfaces.aisdk import routes as aisdk
from gateway.surfaces.anthropic import agent_routes as claude_code
from gateway.surfaces.anthropic import routes as messages
from gateway.surfaces.cohere import routes as cohere
from gateway.surfaces.console import table as console
from gateway.surfaces.google import routes as google
from gateway.surfaces.http import ErrorFormat, Operation, Surface
from gateway.surfaces.http_responses import OPENAI
from gateway.surfaces.management import table as management
from gateway.surfaces.mcp import routes as mcp
from gateway.surfaces.oauth import routes as oauth
from gateway.surfaces.openai import table as openai
from gateway.surfaces.path_spelling import Addresses
from gateway.surfaces.responses import routes as responses
from gateway.surfaces.scim import routes as scim

SURFACES: tuple[Surface, ...] = (
    health.SURFACE,
    metrics.SURFACE,
    openai.SURFACE,
    messages.SURFACE,
    claude_code.SURFACE,
    responses.SURFACE,
    aisdk.SURFACE,
    google.SURFACE,
    google.SHORT,
    cohere.SURFACE,
    mcp.SURFACE,
    oauth.SURFACE,
    scim.SURFACE,
    management.SURFACE,
    console.SURFACE,
    openapi.surface(lambda: described()),
)


def add(surfaces: Iterable[object]) -> None:
    """Add the surfaces of an extension, each once. Raises SettingsError for any other object than a Surface."""
    global SURFACES
    for surface in surfaces:
        if not isinstance(surface, Surface):
            raise SettingsError(f"an extension exports {type(surface).__name__} as a surface; it must be a Surface")
        SURFACES = tuple(dict.fromkeys((*SURFACES, surface)))


def operations() -> list[Operation]:
    """Return all operations in one list."""
    return [operation for surface in SURFACES for operation in surface.operations]


def described() -> list[Operation]:
    """Return the operations in the API description: those that programs call, and the pages to which programs send
    users. Of several operations at one path the description has the first."""
    return [
        operation
        for surface in SURFACES
        for operation in surface.operations
        if (surface.described or operation.about is not None) and operation.chosen is None
    ]


def is_absent(path: str) -> bool:
    """Return whether `path` is not served although it looks like an operation's path."""
    return any(path in surface.absent for surface in SURFACES)


def instead_of(path: str) -> str:
    """Return what to use instead of `path`, which is not served; "" where nothing is known."""
    for surface in SURFACES:
        for known, hint in surface.instead.items():
            if path == known or path.startswith(f"{known}/"):
                return hint
    return ""


def addresses() -> Addresses:
    """Return the paths of all operations, and their aliases."""
    aliases: dict[str, str] = {}
    for surface in SURFACES:
        aliases |= surface.aliases
    return Addresses((operation.path for operation in operations()), aliases)


def errors_at(path: str) -> ErrorFormat:
    """Return the format of errors at `path` that reach no operation (an unknown path, a wrong method)."""
    nearest = max(SURFACES, key=lambda surface: surface.depth(path))
    if nearest.depth(path):
        return nearest.errors
    return OPENAI
