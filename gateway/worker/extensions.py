"""Extensions: operations, protocols and surfaces from other packages, which a setting names."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gateway.catalogue.entries import PROTOCOLS, ProtocolEntry
from gateway.configuration.file import SettingsError
from gateway.neutral import operations
from gateway.neutral.operations import ModelOperation
from gateway.runtime.lazy_import import LazyImport

# The server's master loads extensions too, and does not need protocols unless an extension adds some.
registry = LazyImport("gateway.providers.registry")

if TYPE_CHECKING:
    from gateway.providers.protocol import WireFormat
    from gateway.providers.registry import Resources


class Extension(Struct, frozen=True):
    """The additions of a package, which exports it as `EXTENSION`.

    `protocols` are factories by the name that catalogue entries use; `surfaces` are
    `gateway.surfaces.web.http.Surface`s, which the table of surfaces checks because they belong to a higher layer.
    """

    operations: tuple[ModelOperation, ...] = ()
    protocols: Mapping[str, Callable[["Resources"], "WireFormat"]] = field(default_factory=dict)
    surfaces: tuple[object, ...] = ()


def load(names: Iterable[str]) -> list[Extension]:
    """Return the extensions of these packages. Raise SettingsError if a package cannot be imported or has no
    EXTENSION.
    """
    return [_load(name) for name in names]


def install(names: Iterable[str]) -> None:
    """Register the operations and protocols of these packages; safe to repeat.

    Raise SettingsError as `load`, and for a name that is already in use.
    """
    for name, extension in zip(names, load(names), strict=True):
        for operation in extension.operations:
            if operations.OPERATIONS.setdefault(operation.name, operation) is not operation:
                raise SettingsError(f"extension {name}: the operation {operation.name} already exists")
        for protocol, make in extension.protocols.items():
            PROTOCOLS.setdefault(protocol, ProtocolEntry())
            if registry.FACTORIES.setdefault(protocol, make) is not make:
                raise SettingsError(f"extension {name}: the protocol {protocol} already exists")


def _load(name: str) -> Extension:
    try:
        extension = getattr(importlib.import_module(name), "EXTENSION", None)
    except ImportError as error:
        raise SettingsError(f"extension {name}: {error}") from error
    if not isinstance(extension, Extension):
        raise SettingsError(f"extension {name}: the package exports no EXTENSION")
    return extension
