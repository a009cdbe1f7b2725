"""The operator as a visitor of the management API, for commands that run its operations in this process."""

from collections import ChainMap
from collections.abc import Mapping

from gateway.accounts.changes import OPERATOR
from gateway.accounts.members import MemberInfo, list_owners
from gateway.accounts.organizations import OrganizationInfo, list_organizations
from gateway.accounts.sessions import SessionInfo
from gateway.surfaces.visitor import Visitor
from gateway.worker.services import Services

SESSION = SessionInfo("", OPERATOR, "", "", 0, 0)


class OperatorVisitor(Visitor):
    """The operator is an owner of every organization: keys that the operator creates belong to its oldest owner."""

    __slots__ = ()

    def organizations(self) -> list[OrganizationInfo]:
        return list_organizations(self.services.store.database)

    def is_operator(self) -> bool:
        return True


def visit_as_operator(services: Services) -> OperatorVisitor:
    """Return the operator's visitor."""
    database = services.store.database
    absent = {
        info.id: MemberInfo("", info.id, OPERATOR, "", "", "owner", "active") for info in list_organizations(database)
    }
    owners: dict[str, MemberInfo] = {}
    for member in list_owners(database):
        owners.setdefault(member.organization_id, member)
    memberships: Mapping[str, MemberInfo] = ChainMap(owners, absent)
    return OperatorVisitor(services, SESSION, memberships)
