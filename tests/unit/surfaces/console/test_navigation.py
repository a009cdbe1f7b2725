"""The console's navigation shows the entry of the current page, and to developers no pages of managers."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.console_walk import signed_in_rows

from gateway.surfaces.console.navigation import find_current, list_links
from gateway.surfaces.console.table import SURFACE
from gateway.surfaces.visitor import Visitor


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
    first_steps = ["/console/start", "/console/welcome"]
    assert [path for path in signed_in_rows() if not find_current(path)] == first_steps


def test_developers_see_no_pages_of_managers() -> None:
    developer = visitor_with("developer")
    shown = [link for _, links in list_links(developer) for link in links]
    assert shown and not any(link.managers for link in shown)


def visitor_with(role: str) -> Visitor:
    unused: Any = None
    member: Any = SimpleNamespace(role=role)
    return Visitor(unused, unused, {"org_1": member})
