"""The organization that a page is about: the one in the query, else the first that the visitor may see there."""

from msgspec import Struct

from gateway.accounts.organizations import OrganizationInfo
from gateway.accounts.permissions import Permission
from gateway.errors import Forbidden
from gateway.surfaces.console.page_calls import PageCall

PARAMETER = "organization"


class OrganizationChoice(Struct, frozen=True):
    """The organization of a page, and all that the visitor may choose."""

    chosen: OrganizationInfo
    managed: list[OrganizationInfo]

    @property
    def id(self) -> str:
        return self.chosen.id

    @property
    def options(self) -> list[tuple[str, str]]:
        """Return the choices of a field; none for a visitor with a single organization."""
        if len(self.managed) < 2:
            return []
        return [(organization.id, organization.name) for organization in self.managed]


def choose_organization(call: PageCall, permission: Permission = "organization:write") -> OrganizationChoice:
    """Return the organization of the request. Raises NotFound, and Forbidden for a visitor without the permission in
    it, which may cover a part of the organization only."""
    # The memberships are those of the start of the request: an organization that it created is listed by the next one.
    visitor = call.visitor
    managed = [organization for organization in visitor.organizations() if visitor.may(permission, organization.id)]
    named = call.params.get("organization_id") or call.arguments.get(PARAMETER, "")
    if named:
        visitor.check(named, permission, visitor.may(permission, named))
    if not managed:
        raise Forbidden("Your role does not allow this page.")
    return OrganizationChoice(
        next((organization for organization in managed if organization.id == named), managed[0]), managed
    )
