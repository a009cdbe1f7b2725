"""Which tests a process takes next when several share them: none is left waiting at the end while others idle."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from support.late_imports import LATE, first_needed

RUNNERS = {"GatewayProcess", "subprocess"}
# Roughly how long a test takes; a module that takes long begins early.
SECONDS, SLOW_SECONDS = 0.015, 1.0


@dataclass
class Module:
    """The tests of a module, by their places in the session. `library`: the dearest of those that are imported late
    which it needs, "" for none. `waits`: it runs gateways or commands as processes, so it waits more than it works."""

    library: str
    waits: bool
    seconds: float = 0.0
    tests: list[int] = field(default_factory=list)


def modules_of(items: Sequence[pytest.Item]) -> list[Module]:
    """All modules of the session, the longest first."""
    found: dict[object, Module] = {}
    for place, item in enumerate(items):
        module = found.get(item.path)
        if module is None:
            loaded = getattr(item, "module", None)
            needed = first_needed(loaded) if loaded is not None else len(LATE)
            # A vendor's client, whoever imports it.
            library = LATE[needed].removeprefix("fakes.").partition("_")[0] if needed < len(LATE) else ""
            waits = loaded is not None and not RUNNERS.isdisjoint(vars(loaded))
            module = found[item.path] = Module(library, waits)
        module.tests.append(place)
        module.seconds += SLOW_SECONDS if item.get_closest_marker("slow") else SECONDS
    return sorted(found.values(), key=lambda one: -one.seconds)


class Queue:
    """What nobody has taken yet. Half of the processes begin with modules that wait and the others work beside them; a
    process stays with the libraries that it has imported."""

    def __init__(self, modules: list[Module]) -> None:
        self._left = modules
        self._begun: set[str] = set()

    def take(self, waits: bool, libraries: set[str]) -> list[int]:
        """The tests of the next module for a process with these libraries, which are added to; none when all are
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
