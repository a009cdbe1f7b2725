"""Try each change of people, keys, limits and organizations through each door, and compare with docs/authority.md
(`make pages` writes it)."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from support.changes_by_door import CHANGES, DOORS, Doors

from gateway.configuration.settings import ROOT

PAGE = ROOT / "docs" / "authority.md"
HEAD = """# Who may change what

This table shows through which doors a field of a person, a limit, a key or an organization can be changed: ● means that
the change happens, · that it is refused or that the door has no way to it. A test tries each cell and writes this page.
The person, the key and the limit are those of another member; [roles](management.md#roles) describes what people may
change of their own.

| Door | Authority |
|---|---|
| developer, admin, owner | a session of a member with this role |
| team lead, project admin | a session of a viewer with this role in the team or project that the change concerns |
| service account | a [service account](management.md#service-accounts) with all scopes |
| OAuth token | an application that an owner authorized ([MCP](mcp.md)) |
| SCIM | a [provisioning](scim.md) token that an admin or an owner created |
| identity provider | a sign-in or refusal by a [provider](sso.md#owners) that an admin or an owner added |
| group rule | a [rule](sso.md#group-rules) that an admin or an owner writes, for a group that owners trust |
| operator | a command of the installation |

Each change of a role, a membership, an address or a sign-in asks the same question (`gateway/accounts/authority.py`):
the authority of the door must cover the role of the person before and after the change. It must also cover the role
of the owner of a key that is changed. A person cannot end a limit that a higher role set
(`gateway/admin/held_limits.py`).

"""


def write(lines: dict[str, dict[str, list[bool]]]) -> str:
    text = HEAD
    for subject, rows in lines.items():
        text += f"## {subject}\n\n| | {' | '.join(DOORS)} |\n|---|{':-:|' * len(DOORS)}\n"
        for name, cells in rows.items():
            text += f"| {name} | {' | '.join('●' if cell else '·' for cell in cells)} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n"


@pytest.mark.slow
def test_the_table_of_changes_is_what_the_gateway_does(open_tenants: Callable[..., Any]) -> None:
    with open_tenants() as tenants:
        tenants.services.management.count_change = lambda member: None
        doors = Doors(tenants)
        lines = {
            subject: {change.name: [doors.is_allowed(change, door) for door in DOORS] for change in changes}
            for subject, changes in CHANGES.items()
        }
    text = write(lines)
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
