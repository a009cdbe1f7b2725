"""Published routes act on every node within a second, and cost nothing where there are none."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.monkey import get_original

from gateway.accounts import members, organizations, projects, route_changes, teams
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.errors import Unavailable
from gateway.routes import route_book
from gateway.routes.compiled import CompiledRoute
from gateway.routes.route_book import RouteBook
from gateway.routes.route_document import read_document
from gateway.store.database import Database

ACTOR = {"actor": "test"}
thread_id: Callable[[], int] = get_original("_thread", "get_ident")


class Node:
    """A worker on a separate node."""

    def __init__(self, database: Database, clock: Clock, name: str) -> None:
        self.database = database
        self.control = Control(database, clock, node=name)
        self.book = RouteBook(database, self.control)
        self.control.start()

    def put(self, organization: str, model: str, *aliases: str, project: str = "", name: str = "house") -> None:
        document = read_document({"otherwise": model})
        route_changes.put_route(self.database, self.control, organization, name, document, aliases, project, **ACTOR)

    def publish(self, organization: str, version: int | None = None, name: str = "house") -> None:
        route_changes.publish_route(self.database, self.control, organization, name, version, **ACTOR)

    def models_of(self, organization: str, name: str = "dynamic/house", project: str = "proj_1") -> tuple[str, ...]:
        route = self.book.find(organization, project, name)
        return () if route is None else route.otherwise.models


@pytest.fixture
def nodes(database_url: str, open_store: Callable[..., Database], clock: Clock) -> Iterator[tuple[Node, Node]]:
    stores = [open_store(database_url), open_store(database_url)]
    stores[0].bind()
    made = (Node(stores[0], clock, "one"), Node(stores[1], clock, "two"))
    yield made
    for node in made:
        node.control.stop()


@pytest.fixture
def organization(nodes: tuple[Node, Node]) -> str:
    return organizations.create_organization(nodes[0].database, nodes[0].control, "Acme", **ACTOR).id


def test_published_version_acts_on_the_other_node_when_the_change_returns(
    nodes: tuple[Node, Node], organization: str
) -> None:
    one, two = nodes
    one.put(organization, "a")
    assert two.models_of(organization) == () and "dynamic/house" not in two.book.names
    one.publish(organization)
    one.put(organization, "b")
    assert two.models_of(organization) == ("a",) and "dynamic/house" in two.book.names
    held = two.book.find(organization, "proj_1", "dynamic/house")
    one.publish(organization)
    assert two.models_of(organization) == ("b",)
    assert held is not None and held.otherwise.models == ("a",)  # a request in progress keeps its version
    one.publish(organization, 1)
    assert two.models_of(organization) == ("a",)
    route_changes.delete_route(one.database, one.control, organization, "house", **ACTOR)
    assert two.models_of(organization) == () and "dynamic/house" not in two.book.names


def test_other_listeners_of_changes_do_not_keep_an_old_version_in_force(
    database_url: str, open_store: Callable[..., Database], clock: Clock
) -> None:
    store = open_store(database_url)
    store.bind()
    control = Control(store, clock, node="one")
    held = Event()
    # Another listener, which reads a store that is slow.
    control.on_change(lambda version: None, lambda version: held.wait(5))
    book = RouteBook(store, control)
    organization = organizations.create_organization(store, Control.observer(store), "Acme", **ACTOR).id

    observer = Control.observer(store)

    def put(model: str) -> None:
        document = read_document({"otherwise": model})
        route_changes.put_route(store, observer, organization, "house", document, (), "", **ACTOR)

    def publish() -> None:
        route_changes.publish_route(store, observer, organization, "house", None, **ACTOR)

    def await_change() -> None:
        version, until = observer.check(), time.monotonic() + 4
        while control.version < version and time.monotonic() < until:
            gevent.sleep(0.01)
        assert control.version == version

    def used() -> tuple[str, ...]:
        route = book.find(organization, "proj_1", "dynamic/house")
        return () if route is None else route.otherwise.models

    held.set()
    put("a")
    publish()
    put("b")
    control.start()
    try:
        await_change()
        assert used() == ("a",)
        held.clear()
        publish()
        await_change()
        assert used() == ("b",) and not held.is_set()
    finally:
        held.set()
        control.stop()


def test_names_call_the_route_of_their_organization_and_project_alone(
    nodes: tuple[Node, Node], organization: str
) -> None:
    one, two = nodes
    project = projects.create_project(one.database, one.control, organization, "A", **ACTOR).id
    other = organizations.create_organization(one.database, one.control, "Other", **ACTOR).id
    one.put(organization, "a", "house-default", project=project)
    one.publish(organization)
    assert two.models_of(organization, "house-default", project) == ("a",)
    assert two.models_of(organization, "house-default[1m]", project) == ("a",)
    assert two.models_of(organization, "house-default", "proj_2") == ()
    assert two.models_of(other, "house-default", project) == ()
    assert [name for name, _ in two.book.names_of(organization, project)] == [
        "dynamic/house",
        "house-default",
        "smart",
    ]
    assert [name for name, _ in two.book.names_of(other, project)] == ["smart"]


def test_smart_is_known_to_all_and_replaced_by_a_route_of_this_name(
    nodes: tuple[Node, Node], organization: str
) -> None:
    one, two = nodes
    built_in = two.models_of(organization, "smart")
    assert len(built_in) > 1 and two.models_of(organization, "llmgateway/Smart") == built_in
    one.put(organization, "a", name="smart")
    assert two.models_of(organization, "smart") == built_in  # a draft serves no request
    one.publish(organization, name="smart")
    assert two.models_of(organization, "smart") == two.models_of(organization, "dynamic/smart") == ("a",)


def test_oldest_organizations_are_read_again_where_all_are_too_many(
    nodes: tuple[Node, Node], organization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    others = [organizations.create_organization(one.database, one.control, name, **ACTOR).id for name in "BCD"]
    for place in (organization, *others):
        one.put(place, "a")
        one.publish(place)
    compiled = []
    compiling = route_book.compile_route

    def compile_one(*args: Any) -> CompiledRoute:
        compiled.append(args)
        return compiling(*args)

    monkeypatch.setattr(route_book, "compile_route", compile_one)
    two.models_of(organization)
    known = two.book._read_ones[organization].characters
    monkeypatch.setattr(route_book, "MAX_CHARACTERS", 2 * known)
    for place in (organization, *others, others[-1], others[-2]):
        assert two.models_of(place) == ("a",)
    assert len(compiled) == 4  # the last two are known
    assert two.models_of(organization) == ("a",) and len(compiled) == 5
    assert len(two.book._read_ones) == 2


def test_each_request_looks_its_route_up_where_names_are_too_many(
    nodes: tuple[Node, Node], organization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    monkeypatch.setattr(route_book, "MAX_NAMED", 1)
    one.put(organization, "a")
    one.publish(organization)
    assert "gpt-4o" not in two.book.names
    one.put(organization, "b", name="second")
    one.publish(organization, name="second")
    assert two.models_of(organization, "dynamic/second") == ("b",) and two.models_of("org_other") == ()
    assert "gpt-4o" in two.book.names


def test_teams_are_known_with_the_routes_while_the_store_is_down(
    nodes: tuple[Node, Node], organization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    at = one.database, one.control, organization
    ada, bob = (members.add_member(*at, f"{name}@example.com", **ACTOR).id for name in ("ada", "bob"))
    team = teams.create_team(*at, "Research", **ACTOR).id
    teams.set_team_member(one.database, one.control, team, ada, True, **ACTOR)
    document = read_document({"rules": [{"when": {"teams": [team]}, "use": "b"}], "otherwise": "a"})
    route_changes.put_route(one.database, one.control, organization, "house", document, (), "", **ACTOR)
    one.publish(organization)
    assert two.models_of(organization) == ("a",)

    def fail(*args: Any) -> None:
        raise Unavailable()

    monkeypatch.setattr(two.database, "read", fail)
    assert two.book.teams_of(organization, ada) == {team}
    assert two.book.teams_of(organization, bob) == frozenset()


def test_old_versions_are_removed_but_for_the_published_one(
    nodes: tuple[Node, Node], organization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_changes, "MAX_VERSIONS", 2)
    one = nodes[0]
    for model in "abcd":
        one.put(organization, model)
        one.publish(organization)
    versions = route_changes.list_versions(one.database, organization, "house")
    assert [version.version for version in versions] == [4, 3]
    one.publish(organization, 3)
    one.put(organization, "e")
    route_changes.publish_route(one.database, one.control, organization, "house", 3, **ACTOR)
    assert one.models_of(organization) == ("c",)


def test_requests_after_a_change_compile_large_routes_once_in_a_thread(
    nodes: tuple[Node, Node], organization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    document = read_document({"rules": [{"when": {"keys": ["k" * 200] * 100}, "use": "b"}] * 3, "otherwise": "a"})
    route_changes.put_route(one.database, one.control, organization, "house", document, (), "", **ACTOR)
    one.publish(organization)
    threads = []
    compiling = route_book.compile_route
    ready = Event()

    def compile_slowly(*args: Any) -> CompiledRoute:
        threads.append(thread_id())
        return compiling(*args)

    def find() -> tuple[str, ...]:
        ready.wait()
        return two.models_of(organization)

    monkeypatch.setattr(route_book, "compile_route", compile_slowly)
    asking = [gevent.spawn(find) for _ in range(20)]
    gevent.sleep(0)
    ready.set()
    gevent.joinall(asking)
    assert [one.value for one in asking] == [("a",)] * 20
    assert len(threads) == 1 and threads[0] != thread_id()


def test_an_unreadable_version_of_a_later_release_leaves_the_other_routes(
    nodes: tuple[Node, Node], organization: str
) -> None:
    one = nodes[0]
    for name in ("house", "later"):
        one.put(organization, "gpt-4o", name=name)
        one.publish(organization, name=name)
    changed = "UPDATE model_route_version SET document = ? WHERE route_id = (SELECT id FROM model_route WHERE name = ?)"
    one.database.write(lambda: one.database.execute(changed, ('{"otherwise":{"best":["gpt-4o"]}}', "later")))
    one.publish(organization, 1)  # every worker reads the routes again
    assert one.models_of(organization) == ("gpt-4o",)
    assert one.models_of(organization, "dynamic/later") == ()
