"""The choice of the pages about models and routing: for which project or key of the visitor they answer."""

from typing import NamedTuple

from gateway.accounts.authentication import Caller
from gateway.accounts.keys import KeyInfo
from gateway.accounts.member_callers import caller_without_key
from gateway.accounts.projects import ProjectInfo, list_projects
from gateway.surfaces.console.keys.key_pages import list_visible_keys
from gateway.surfaces.visitor import Visitor

FIELD = "for"
MAX_KEYS = 100  # newest keys among which one is chosen


class CallerChoices(NamedTuple):
    """The active projects of a visitor, each with its active keys that the visitor may see. `chosen` is the id of a
    project or of a key, "" where there is no project."""

    groups: tuple[tuple[ProjectInfo, tuple[KeyInfo, ...]], ...]
    chosen: str

    @property
    def project(self) -> ProjectInfo | None:
        """Return the chosen project, or that of the chosen key; None without any."""
        for project, keys in self.groups:
            if self.chosen == project.id or any(key.id == self.chosen for key in keys):
                return project
        return None


def read_choices(visitor: Visitor, chosen: str) -> CallerChoices:
    """Return the choices of a visitor; an unknown choice becomes the first project."""
    projects = list_projects(visitor.services.store.database, list(visitor.memberships))
    active = [project for project in projects if project.status == "active"]
    keys = [key for key in list_visible_keys(visitor, active)[:MAX_KEYS] if key.state == "active" and key.owner_active]
    groups = tuple((project, tuple(key for key in keys if key.project_id == project.id)) for project in active)
    known = [ident for project, own in groups for ident in (project.id, *(key.id for key in own))]
    if chosen not in known:
        chosen = known[0] if known else ""
    return CallerChoices(groups, chosen)


def find_caller(visitor: Visitor, choices: CallerChoices) -> Caller | None:
    """Return the caller of the chosen key, or for a project that of a new key of the visitor; None without a choice.
    Raises Unauthenticated or Gone for a key that may not be used."""
    project = choices.project
    if project is None:
        return None
    if choices.chosen != project.id:
        return visitor.services.accounts.authentication.caller_of_key(choices.chosen)
    return caller_without_key(visitor.services.store.database, project, visitor.member(project.organization_id))
