"""Gives the person who accepts an invitation its team and spending limits, in the transaction of the acceptance."""

from gateway.accounts.invitations import InvitationGrant
from gateway.accounts.members import MemberInfo
from gateway.accounts.scoped_roles import write_role
from gateway.accounts.teams import write_team_member
from gateway.admin.funding import Funding
from gateway.admin.group_grants import read_limits
from gateway.errors import Forbidden, NotFound
from gateway.limits.budgets import Limits
from gateway.limits.models import MEMBER


class InvitationGrants:
    """Writes the team and the limits of invitations."""

    def __init__(self, funding: Funding) -> None:
        self._funding = funding

    def give(self, member: MemberInfo, grant: InvitationGrant, setter: str, now: int) -> None:
        """Add a member to the team, unless it was deleted meanwhile, give the roles in teams and projects, and set the
        limits in the name of `setter`. Lower limits of a former member that a person of a higher rank set stay."""
        if grant.team_id:
            try:
                write_team_member(grant.team_id, member.id, True, actor=setter, now=now)
            except NotFound:
                pass
        for scope_id in grant.part_ids:
            try:
                write_role(scope_id, member.id, True, actor=setter, now=now)
            except NotFound:
                pass
        if not grant.limits:
            return
        wanted = read_limits(grant.limits)

        def edit(before: Limits) -> Limits:
            return Limits(wanted.total_nusd, wanted.period_nusd, wanted.period, before.alert_at, before.reservation)

        place = (MEMBER, member.id, member.organization_id)
        try:
            self._funding.write_limits(*place, edit, setter=setter, actor=setter, now=now)
        except Forbidden:
            pass
