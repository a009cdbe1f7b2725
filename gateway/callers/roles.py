"""The roles of members: in the organization, in a team and in a project."""

from typing import Literal, get_args

Role = Literal["owner", "admin", "billing", "developer", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)
# Roles that a member may have in some teams or projects, beside the role in the organization.
TEAM_LEAD = "team lead"
PROJECT_ADMIN = "project admin"
# If group rules give several roles, the highest counts.
RANKS: dict[str, int] = {"viewer": 0, "developer": 1, "billing": 2, "admin": 3, "owner": 4}
# A higher rank raises spending limits that a lower one set. Stored limits contain these numbers.
LIMIT_RANKS: dict[str, int] = {"viewer": 0, "developer": 0, "billing": 1, "admin": 1, "owner": 2}
