"""Each object of a worker is created once, and belongs to one group of services."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.neutral.chat import ChatRequest, Requirements
from gateway.worker.recurring_jobs import JOB_TABLE
from gateway.worker.services import Services
from gateway.worker.wiring import build

GATEWAY = Path(__file__).resolve().parents[3] / "gateway"
WIRING = (GATEWAY / "worker/wiring.py", GATEWAY / "worker/service_base.py")
GROUPS = {"sso", "store", "accounts", "routing", "billing", "engine", "background", "telemetry"}
# Classes with two alternatives, of which only one is created.
EITHER = {"Pins"}
# Classes with several instances: threads for commits and for unpacking, which must not delay each other; the
# catalogue, and an empty one for callers with only custom models; slots by kind of resource.
SEVERAL = {"Threads", "Sticky", "CurrentCatalogue", "SharedSlots", "SessionSlots", "FairSlots"}


@pytest.fixture
def services(settings, sqlite_url) -> Iterator[Services]:
    made = build(settings(DATABASE_URL=sqlite_url, LLM_OPENAI_API_KEY="x"))
    yield made
    made.close()


def parts_of(value: Any) -> Iterator[Any]:
    """Return the objects that an object refers to: attributes, items, the object of a bound method, variables of a
    closure.
    """
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif hasattr(value, "__self__"):
        yield value.__self__
    elif hasattr(value, "__closure__"):
        yield from (cell.cell_contents for cell in value.__closure__ or ())
    elif type(value).__module__.startswith("gateway."):
        yield from getattr(value, "__dict__", {}).values()
        for kind in type(value).__mro__:
            slots = getattr(kind, "__slots__", ())
            yield from (getattr(value, name) for name in slots if isinstance(name, str) and hasattr(value, name))


def reached_from(start: Any) -> list[Any]:
    """Return every object that can be reached from `start`."""
    seen, waiting = {}, [start]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            waiting.extend(parts_of(value))
    return list(seen.values())


def test_services_are_a_handful_of_groups(services):
    assert {name for name in GROUPS if type(getattr(services, name)).__name__.endswith("Services")} == GROUPS
    assert len(fields(services)) <= len(GROUPS) + 7


def test_nothing_of_a_worker_is_made_twice(services):
    own = {type(value).__name__ for name in GROUPS for value in parts_of(getattr(services, name)) if value is not None}
    own |= {type(value).__name__ for value in parts_of(services.management)}
    own = {name for name in own if name[0].isupper()} - SEVERAL
    assert {"Vault", "ProviderKeys", "Documents", "RequestCoalescing", "Budgets"} - own == {"RequestCoalescing"}
    made = Counter(type(value).__name__ for value in reached_from(services))
    assert {name: made[name] for name in {*own, "RequestCoalescing"} if made[name] != 1} == {}


def test_the_wiring_makes_nothing_twice():
    made = Counter(
        node.func.id
        for path in WIRING
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id[:1].isupper()
    )
    assert {name for name, count in made.items() if count > 1} <= EITHER | SEVERAL
    assert {"Vault", "Funding", "Settlements", "Services"} <= set(made)
    assert not {"Budgets", "LedgerBook"} & set(made), "the funding of the management API has them already"


def test_a_change_of_the_control_plane_ends_every_plan(services):
    caller = Caller("key_1", "user", "", "org_1", "prj_1", "user_1", "mem_1", "owner", "credits")
    context = RequestContext("0" * 32, caller, 0, 0.0, 100.0)
    request = ChatRequest("openai/gpt-4o-mini", Requirements(), tuple)
    plan = partial(services.routing.planner.plan, context, request)
    before = plan()
    assert plan() is before, "a plan serves the next request like it"
    services.store.database.write(services.store.control.bump)
    services.store.control.confirm()
    assert plan() is not before, "a key or a custom model may be another one since"


class Called:
    """A part of the services that does nothing: calls of its methods are added to `names`."""

    def __init__(self, part: object, names: set[str]) -> None:
        self._part = part
        self._names = names

    def __getattr__(self, name: str) -> "Called":
        return Called(getattr(self._part, name), self._names)

    def __call__(self, *args: object) -> "Nothing":
        self._names.add(getattr(self._part, "__qualname__", ""))
        return Nothing()

    def __mul__(self, other: int) -> int:
        return 0  # a number of days from the settings


class Nothing(int):
    """The answer of a call that did nothing: zero, or no rows."""

    def __iter__(self) -> Iterator[object]:
        return iter(())


def methods_in_steps(path: Path) -> Iterator[str]:
    """Yield the public methods of a module that stop between two steps when they should not continue."""
    text = path.read_text()
    if "should_continue: ShouldContinue" not in text:
        return
    for class_ in ast.parse(text).body:
        for node in class_.body if isinstance(class_, ast.ClassDef) else ():
            public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if public and "should_continue" in [argument.arg for argument in node.args.args]:
                yield f"{class_.name}.{node.name}"


# Steps of other work.
STEPS_OF = {
    "AgingTables.purge": "Decisions.purge and RequestLog.purge",
    "Partitions.keep_ready": "UsagePurge.run and others with partitions",
    "Rounds.run": "Poller.run and Deliveries.run",
    "Turns.sweep": "StoredResponses.purge",
}


def test_work_that_is_done_in_steps_is_a_job_of_the_table(services: Services) -> None:
    called: set[str] = set()
    for job in JOB_TABLE:
        job.function(Called(services, called), bool)
    methods = {name for path in GATEWAY.rglob("*.py") for name in methods_in_steps(path)}
    assert methods - called == set(STEPS_OF)
