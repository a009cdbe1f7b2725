"""The scopes of service accounts: the type of the column `scope` in the management table, which says what each
allows."""

from typing import Literal, get_args

# "" is the value of operations for people only.
ManagementScope = Literal[
    "",
    "audit:read",
    "keys:read",
    "keys:write",
    "limits:read",
    "limits:write",
    "logs:read",
    "logs:write",
    "members:read",
    "members:write",
    "projects:read",
    "projects:write",
    "providers:read",
    "providers:write",
    "rules:read",
    "rules:write",
    "service_accounts:read",
    "settings:read",
    "settings:write",
    "teams:read",
    "teams:write",
    "usage:read",
]
SCOPES: tuple[str, ...] = tuple(scope for scope in get_args(ManagementScope) if scope)
