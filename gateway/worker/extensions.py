"""Extensions: operations, protocols and surfaces of packages outside of this one, which a setting names."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.catalogue.protocols import PROTOCOLS, ProtocolEntry
from gateway.configuration.settings import SettingsError
from gateway.neutral import operations
from gateway.neutral.operations import ModelOperation
from gateway.runtime.lazy_import import LazyImport

# The master of the server reads extensions too, and has no use for protocols where there are none.
registry = LazyImport("gateway.providers.registry")

if TYPE_CHECKING:
    from gateway.providers.protocol import Wire
    from gateway.providers.registry import Resources


@dataclass(frozen=True, slots=True)
class Extension:
    """What a package adds; it exports one as `EXTENSION`. `protocols` are factories by the name that catalogue entries
    use; `surfaces` are `gateway.surfaces.http.Surface`s, which the table of surfaces checks: they lie above this."""

    operations: tuple[ModelOperation, ...] = ()
    protocols: Mapping[str, Callable[["Resources"], "Wire"]] = field(default_factory=dict)
    surfaces: tuple[object, ...] = ()


def load(names: Iterable[str]) -> list[Extension]:
    """The extensions of these packages. SettingsError for a package that cannot be imported or has no EXTENSION."""
    return [_load(name) for name in names]


def install(names: Iterable[str]) -> None:
    """Put the operations and protocols of these packages beside the product's own; doing it again changes nothing.
    SettingsError as for `load`, and for a name that is taken."""
    for name, extension in zip(names, load(names), strict=True):
        for operation in extension.operations:
            if operations.OPERATIONS.setdefault(operation.name, operation) is not operation:
                raise SettingsError(f"extension {name}: there is an operation {operation.name} already")
        for protocol, make in extension.protocols.items():
            PROTOCOLS.setdefault(protocol, ProtocolEntry())
            if registry.FACTORIES.setdefault(protocol, make) is not make:
                raise SettingsError(f"extension {name}: there is a protocol {protocol} already")


def _load(name: str) -> Extension:
    try:
        found = getattr(importlib.import_module(name), "EXTENSION", None)
    except ImportError as error:
        raise SettingsError(f"extension {name}: {error}") from error
    if not isinstance(found, Extension):
        raise SettingsError(f"extension {name}: the package exports no EXTENSION")
    return found
