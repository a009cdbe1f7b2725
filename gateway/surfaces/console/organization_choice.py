"""The organization that a page of managers is about: the one in the query, else the first that the visitor manages."""

from msgspec import Struct

from gateway.accounts.organizations import OrganizationInfo
from gateway.accounts.roles import MANAGERS
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


def choose_organization(call: PageCall) -> OrganizationChoice:
    """Return the organization of the request. Raises NotFound, and Forbidden for a visitor who does not manage it."""
    # The memberships are those of the start of the request: an organization that it created is listed by the next one.
    roles = {organization_id: member.role for organization_id, member in call.visitor.memberships.items()}
    managed = [organization for organization in call.visitor.organizations() if roles.get(organization.id) in MANAGERS]
    named = call.params.get("organization_id") or call.arguments.get(PARAMETER, "")
    if named:
        call.visitor.manager(named)
    if not managed:
        raise Forbidden("Only owners and admins of an organization see this page.")
    return OrganizationChoice(
        next((organization for organization in managed if organization.id == named), managed[0]), managed
    )
