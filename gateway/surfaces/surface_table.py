"""All surfaces of the product: the list from which blueprints, error formats and description are derived."""

from collections.abc import Iterable

from gateway.surfaces import model_surfaces
from gateway.surfaces.console import table as console
from gateway.surfaces.description import openapi as openapi_module
from gateway.surfaces.management import table as management
from gateway.surfaces.oauth import routes as oauth
from gateway.surfaces.scim import routes as scim
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.http import ErrorFormat, Operation, Surface
from gateway.surfaces.web.request_targets import Addresses

NAMED_METHOD = "<path:model>:"  # in paths of methods of a resource, such as "/v1beta/models/<path:model>:countTokens"

SURFACES: tuple[Surface, ...] = (
    *model_surfaces.SURFACES,
    oauth.SURFACE,
    scim.SURFACE,
    management.SURFACE,
    console.SURFACE,
    openapi_module.surface(lambda: described()),
)


def add(surfaces: Iterable[Surface]) -> None:
    """Add surfaces, each once."""
    global SURFACES
    SURFACES = tuple(dict.fromkeys((*SURFACES, *surfaces)))


def operations() -> list[Operation]:
    """Return all operations in one list."""
    return [operation for surface in SURFACES for operation in surface.operations]


def described() -> list[Operation]:
    """Return the operations in the API description: those that programs call, and the pages to which programs send
    users. Where several operations have one path, the description has the first."""
    return [
        operation
        for surface in SURFACES
        for operation in surface.operations
        if (surface.described or operation.about is not None) and operation.chosen is None
    ]


def is_absent(path: str) -> bool:
    """Return whether `path` is not served although it looks like an operation's path."""
    return any(path in surface.absent or _method_of(path) in surface.instead for surface in SURFACES)


def _resources_with_methods() -> tuple[str, ...]:
    """Return the beginnings of paths that end in a resource's name and a method (`/v1beta/models/`)."""
    starts = (operation.path.partition(NAMED_METHOD) for operation in operations())
    return tuple({start for start, named, _ in starts if named})


def is_unknown_method(path: str) -> bool:
    """Return whether `path` looks like a method of a resource. A method that is served has its own operation."""
    return bool(_method_of(path)) and path.startswith(_resources_with_methods())


def _method_of(path: str) -> str:
    """Return ":predict" of "/v1beta/models/imagen-4:predict"; "" without a colon."""
    _, colon, name = path.rpartition(":")
    return colon + name if colon else ""


def instead_of(path: str) -> str:
    """Return what to use instead of `path`, which is not served; "" where nothing is known. A hint also holds for the
    paths below its own, unless some of those are served."""
    for surface in SURFACES:
        for known, hint in surface.instead.items():
            below = f"{known}/"
            if known in (path, _method_of(path)) or (
                path.startswith(below) and not any(each.path.startswith(below) for each in operations())
            ):
                return hint
    return ""


def _serves_below(path: str) -> bool:
    return any(operation.path.startswith(f"{path}/") for operation in operations())


def addresses() -> Addresses:
    """Return the paths of all operations, and their aliases."""
    return Addresses.of(SURFACES)


def errors_at(path: str) -> ErrorFormat:
    """Return the format of errors at `path` that reach no operation (an unknown path, a wrong method)."""
    return http_responses_module.errors_at(SURFACES, path)
