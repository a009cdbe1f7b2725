"""Projects by whether they use the provider keys of their organization, and the command that switches the others."""

from typing import NamedTuple

from gateway.accounts.projects import ProjectInfo, list_projects
from gateway.callers.credential_sources import CREDITS, HYBRID, PROJECT_MODES
from gateway.configuration.settings import MANAGE
from gateway.store.database import Database

MODES_WITH_KEYS = " or ".join(
    f"'{mode}' ({text[:1].lower()}{text[1:]})" for mode, text in PROJECT_MODES.items() if mode != CREDITS
)
MAX_SHOWN = 50  # projects of either list


class KeyUse(NamedTuple):
    """The active projects of an organization, oldest first: those in a mode that uses its provider keys, and those that
    spend credits and never use them."""

    used_by: list[ProjectInfo]
    unused_by: list[ProjectInfo]


def find_key_use(database: Database, organization_id: str) -> KeyUse:
    """Return the projects of an organization by whether they use its provider keys."""
    active = [project for project in list_projects(database, [organization_id]) if project.status == "active"]
    return KeyUse(
        [project for project in active if project.mode != CREDITS],
        [project for project in active if project.mode == CREDITS],
    )


def summarize_use(use: KeyUse, switched: int = 0) -> str:
    """Return a sentence for the person who added a key. `switched` projects were set to use it."""
    if not use.used_by and not use.unused_by:
        return "The organization has no active project yet."
    if not use.unused_by:
        note = ""
        if switched:
            note = f" The setting 'mode' of {switched:,} of them is '{HYBRID}' now ({PROJECT_MODES[HYBRID]})."
        return f"Every active project of the organization uses it.{note}"
    named = ", ".join(project.name for project in use.used_by[:MAX_SHOWN]) or "No project"
    verb = "use" if len(use.used_by) > 1 else "uses"
    count = len(use.unused_by)
    if count == 1:
        others = "1 project spends credits and does not use it until its"
    else:
        others = f"{count:,} projects spend credits and do not use it until their"
    return f"{named} {verb} it. {others} setting 'mode' is {MODES_WITH_KEYS}."


def switch_command(project: ProjectInfo) -> str:
    """Return the operator's command that lets a project use its organization's provider keys."""
    return f"{MANAGE} projects set {project.id} --mode {HYBRID}"
