"""The bar at the top of a page: the organization, the project and the period that the page is about. The choice is in
the address, and kept for the next pages (kept_choices.py)."""

from collections.abc import Iterable
from typing import NamedTuple

from gateway.surfaces.console.kept_choices import PAGES, link_page, read_choices
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound

ENDED = ("q", "page", "cursor", "day")  # parameters that belong to what was shown before


class ChoiceField(NamedTuple):
    """A field of the bar: its parameter, its label, its options (value and text), and the chosen one."""

    name: str
    label: str
    options: list[tuple[str, str]]
    chosen: str


class ChoiceBar(NamedTuple):
    """The fields of a page, and the other parameters of its address, which the choice keeps."""

    fields: list[ChoiceField]
    further: list[tuple[str, str]]


def build_bar(inbound: Inbound, *fields: ChoiceField) -> ChoiceBar:
    """Return the bar of a page: only of fields that leave a choice."""
    shown = [field for field in fields if len(field.options) > 1]
    names = {*ENDED, *(field.name for field in shown)}
    further = [(name, value) for name, value in inbound.arguments().items() if value and name not in names]
    return ChoiceBar(shown, further)


def choose_period(chosen: str, periods: Iterable[tuple[str, str]], whole: str = "") -> ChoiceField:
    """Return the field of the period; `whole` is the text of all time."""
    return ChoiceField("timeRange", "Period", [*([("", whole)] if whole else []), *periods], chosen)


def choose_project(visitor: Visitor, chosen: str) -> ChoiceField:
    """Return the field of the project, with those of all organizations of the visitor."""
    projects = visitor.projects()
    organizations = {one.id: one.name for one in visitor.organizations()} if len(visitor.memberships) > 1 else {}
    named = [
        (one.id, f"{organizations[one.organization_id]}: {one.name}" if organizations else one.name) for one in projects
    ]
    named.sort(key=lambda one: one[1].casefold())
    return ChoiceField("projectId", "Project", [("", "All projects"), *named], chosen)


def read_visible(inbound: Inbound, visitor: Visitor) -> dict[str, str]:
    """Return the choices of a page and those that were kept, without an organization or project that the visitor does
    not see."""
    chosen = read_choices(inbound)
    if chosen.get("organization", "") not in ("", *visitor.memberships):
        chosen.pop("organization")
    if "projectId" in chosen and all(one.id != chosen["projectId"] for one in visitor.projects()):
        chosen.pop("projectId")
    return chosen


def find_kept_address(inbound: Inbound, visitor: Visitor) -> str:
    """Return the address of a page that was asked for without any choice, with those that were kept; "" where nothing
    was. An address that has parameters shows what they say."""
    if inbound.query or inbound.path not in PAGES:
        return ""
    address = link_page(inbound.path, read_visible(inbound, visitor))
    return address if address != inbound.path else ""
