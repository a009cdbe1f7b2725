"""Distributes tests to processes so that none runs alone at the end while the others are idle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from support.late_imports import LATE, first_needed

RUNNERS = {"GatewayProcess", "subprocess"}
# Test modules that import one of these names follow each other in one process, which starts the browser once, or parses
# the package once.
ONCE = ("Chromium", "read_source")
# The approximate duration of a test; long modules start early. A module with longer tests sets its DURATION_S.
SECONDS, SLOW_SECONDS = 0.015, 1.0
SLOW_MARKS = ("slow", "extended")


@dataclass
class Module:
    """The tests of a module, as indices in the session. `library`: its name in ONCE, or the slowest lazily imported
    library that it needs; "" for neither. `waits`: it runs gateways or commands as processes, so it mostly waits."""

    library: str
    waits: bool
    seconds: float = 0.0
    tests: list[int] = field(default_factory=list)


def modules_of(items: Sequence[pytest.Item]) -> list[Module]:
    """Return all modules of the session, the longest first."""
    found: dict[object, Module] = {}
    for place, item in enumerate(items):
        module = found.get(item.path)
        if module is None:
            loaded = getattr(item, "module", None)
            needed = first_needed(loaded) if loaded is not None else len(LATE)
            # The client library of a vendor in the module's name.
            library = LATE[needed].removeprefix("fakes.").partition("_")[0] if needed < len(LATE) else ""
            library = next((name for name in ONCE if hasattr(loaded, name)), library)
            waits = loaded is not None and not RUNNERS.isdisjoint(vars(loaded))
            module = found[item.path] = Module(library, waits, getattr(loaded, "DURATION_S", 0.0))
        module.tests.append(place)
        module.seconds += SLOW_SECONDS if any(map(item.get_closest_marker, SLOW_MARKS)) else SECONDS
    return sorted(found.values(), key=lambda one: -one.seconds)


class Queue:
    """The modules that no process has taken yet. Half of the processes start with modules that wait, the others with
    modules that compute; a process prefers the libraries that it has imported."""

    def __init__(self, modules: list[Module]) -> None:
        self._left = modules
        self._begun: set[str] = set()

    def take(self, waits: bool, libraries: set[str]) -> list[int]:
        """Return the tests of the next module for a process with these libraries, and add its library; [] when all are
        taken."""
        if not self._left:
            return []

        def order(one: Module) -> tuple[bool, int]:
            foreign = one.library in self._begun and one.library not in libraries
            return one.waits is not waits, 2 if foreign else 0 if one.library in libraries else 1

        module = min(self._left, key=order)
        self._left.remove(module)
        if module.library:
            libraries.add(module.library)
            self._begun.add(module.library)
        return module.tests
