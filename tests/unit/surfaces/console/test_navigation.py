"""The console's navigation shows the entry of the current page, and to each role its pages."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.console_walk import signed_in_rows

from gateway.accounts.scoped_roles import NO_PARTS, Parts
from gateway.errors import Forbidden
from gateway.surfaces.console.pages import GROUPS, check_page, find_current, list_links
from gateway.surfaces.console.table import SURFACE
from gateway.surfaces.visitors.visitor import Visitor


@pytest.mark.parametrize(
    ("path", "current"),
    [
        ("/console", "/console"),
        ("/console/logs/0123", "/console/logs"),
        ("/console/keys", "/console/keys"),
        ("/console/login", ""),
    ],
)
def test_the_entry_of_a_page_is_marked(path: str, current: str) -> None:
    assert find_current(path) == current


def test_each_entry_leads_to_a_page() -> None:
    owner = visitor_with("owner")
    paths = {operation.path for operation in SURFACE.operations if operation.method == "GET"}
    assert {link.path for _, links in list_links(owner) for link in links} - {"/docs", "/docs/guides"} <= paths


def test_each_page_belongs_to_an_entry() -> None:
    """The other pages are opened from each page, by a shared link, or before the first request."""
    places = ("find", "notices", "notices/count", "shared/<share_id>", "shared/<share_id>/<log_id>", "start")
    found = [path for path in signed_in_rows() if not find_current(path)]
    assert found == [*(f"/console/{place}" for place in places), "/console/welcome"]


ORGANIZATION = {
    f"/console/{name}"
    for name in (
        "system",
        *("people", "teams", "budgets", "guardrails", "routes"),
        *("projects", "automation", "alerts", "audit", "settings"),
    )
}
SYSTEM = "/console/system"  # of operators
WITH_KEYS = {f"/console/{name}" for name in ["logs", "sessions", "playground", "setup", "keys"]}


@pytest.mark.parametrize(
    ("role", "parts", "hidden"),
    [
        ("owner", NO_PARTS, {SYSTEM}),
        ("admin", NO_PARTS, {SYSTEM}),
        ("developer", NO_PARTS, ORGANIZATION),
        (
            "developer",
            Parts(teams=frozenset(("team_1",))),
            ORGANIZATION - {"/console/people", "/console/teams", "/console/budgets"},
        ),
        ("developer", Parts(projects=frozenset(("proj_1",))), ORGANIZATION - {"/console/projects"}),
        ("viewer", NO_PARTS, WITH_KEYS | ORGANIZATION - {"/console/people", "/console/teams", "/console/budgets"}),
        (
            "billing",
            NO_PARTS,
            WITH_KEYS | ORGANIZATION - {"/console/people", "/console/teams", "/console/budgets", "/console/settings"},
        ),
    ],
)
def test_a_person_sees_the_pages_of_the_own_role(role: str, parts: Parts, hidden: set[str]) -> None:
    visitor = visitor_with(role, parts)
    shown = {link.path for _, links in list_links(visitor) for link in links}
    assert {link.path for _, links in GROUPS for link in links} - shown == hidden
    alone = {link.path for _, links in GROUPS for link in links if link.alone}
    for path in hidden:
        with pytest.raises(Forbidden):
            check_page(visitor, path if path in alone else f"{path}/something")


class Operator(Visitor):
    def is_operator(self) -> bool:
        return True


class Stranger(Visitor):
    def is_operator(self) -> bool:
        return False


def visitor_with(role: str, parts: Parts = NO_PARTS, kind: type[Visitor] = Stranger) -> Visitor:
    unused: Any = None
    member: Any = SimpleNamespace(id="member_1", role=role)
    return kind(unused, unused, {"org_1": member}, parts={"member_1": parts})


def test_operators_see_the_page_of_the_installation() -> None:
    links = {link.path for _, shown in list_links(visitor_with("owner", kind=Operator)) for link in shown}
    assert SYSTEM in links


def test_each_page_of_the_navigation_is_in_the_document_of_the_console() -> None:
    text = (Path(__file__).parents[4] / "docs/console.md").read_text()
    paths = {link.path for _, links in GROUPS for link in links if link.path.startswith("/console")}
    assert {path for path in paths if f"`{path}`" not in text} == set()
