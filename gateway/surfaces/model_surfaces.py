"""The surfaces that call models, with probes and metrics.

A worker has them from its start; the first request for any other imports the rest (`gateway/application/app.py`).
Operations for the express lane must be here.
"""

from collections.abc import Iterable

from gateway.configuration.file import SettingsError
from gateway.surfaces import health, metrics
from gateway.surfaces.agents import agent_routes as claude_code
from gateway.surfaces.aisdk import routes as aisdk
from gateway.surfaces.anthropic import routes as messages
from gateway.surfaces.cohere import routes as cohere
from gateway.surfaces.google import routes as google
from gateway.surfaces.mcp import routes as mcp
from gateway.surfaces.openai import table as openai
from gateway.surfaces.responses import routes as responses
from gateway.surfaces.web.http import Surface

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
)


def with_extensions(added: Iterable[object]) -> tuple[Surface, ...]:
    """Return the surfaces and those of extensions, each once. Raises SettingsError for any other object than a
    Surface."""
    found = list(SURFACES)
    for surface in added:
        if not isinstance(surface, Surface):
            raise SettingsError(f"an extension exports {type(surface).__name__} as a surface; it must be a Surface")
        found.append(surface)
    return tuple(dict.fromkeys(found))
