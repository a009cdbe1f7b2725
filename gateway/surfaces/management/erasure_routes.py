"""`/orgs/…/members/…/export` and `/erase`: a person's data, to hand out or to delete."""

from msgspec import Raw

from gateway.accounts import keys
from gateway.accounts.identities import list_identities
from gateway.accounts.member_attributes import AttributePeriod
from gateway.accounts.members import MemberInfo
from gateway.admin.erasure import erase_member, export_member
from gateway.clock import DAY_US, HOUR_US, to_iso
from gateway.surfaces.management.access_groups import of_member
from gateway.surfaces.management.answers import (
    AttributePeriodAnswer,
    AuditEntryAnswer,
    ErasureAnswer,
    ExportedApplicationAnswer,
    ExportedGroupAnswer,
    ExportedInvitationAnswer,
    ExportedOutcomeAnswer,
    ExportedPasskeyAnswer,
    ExportedPresetAnswer,
    ExportedRaiseRequestAnswer,
    ExportedSessionAnswer,
    ExportedViewAnswer,
    PersonalDataAnswer,
    ProvisionedAnswer,
)
from gateway.surfaces.management.key_routes import show_keys
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.management.member_routes import show_member
from gateway.surfaces.management.sign_in_routes import show_identity
from gateway.surfaces.web.http import Operation

TAG = "Members"


def export(call: ManagedCall[MemberInfo]) -> PersonalDataAnswer:
    """Return what is stored about a member and their account, without secrets. Requests with their payloads are
    exported with the logs of the projects."""
    member = call.subject
    data = export_member(call.database, member)
    listed = keys.list_keys(call.database, organization_id=member.organization_id, member_id=member.id)
    return PersonalDataAnswer.of(
        data,
        member=show_member(call.database, member, call.management.budgets.status(member.id)),
        created_at=data.created_at_us,
        api_keys=show_keys(call.visitor, listed),
        identities=[
            show_identity(identity)
            for identity in list_identities(call.database, member.user_id)
            if identity.organization_id in ("", member.organization_id)
        ],
        provisioned=[ProvisionedAnswer.of(person) for person in data.provisioned],
        attributes=[show_period(period) for period in data.attributes],
        groups=[ExportedGroupAnswer.of(group) for group in data.groups],
        invitations=[ExportedInvitationAnswer.of(invitation) for invitation in data.invitations],
        sessions=[ExportedSessionAnswer.of(session) for session in data.sessions],
        passkeys=[ExportedPasskeyAnswer.of(passkey) for passkey in data.passkeys],
        applications=[ExportedApplicationAnswer.of(application) for application in data.applications],
        views=[ExportedViewAnswer.of(view) for view in data.views],
        presets=[
            ExportedPresetAnswer(preset.name, call.services.store.vault.open(preset.sealed)) for preset in data.presets
        ],
        outcomes=[
            ExportedOutcomeAnswer.of(outcome.figures, date=to_iso(outcome.day * DAY_US)[:10], agent=outcome.agent)
            for outcome in data.outcomes
        ],
        limit_requests=[ExportedRaiseRequestAnswer.of(asked) for asked in data.limit_requests],
        audit=[AuditEntryAnswer.of(entry, detail=Raw(entry.detail)) for entry in data.entries],
    )


def erase(call: ManagedCall[MemberInfo]) -> ErasureAnswer:
    """Delete the personal data of a member, and refuse their keys. Usage, costs and audit entries stay under the id of
    the member, which leads to no name and no address from then on. This cannot be undone."""
    member = call.subject
    return ErasureAnswer.of(erase_member(*call.stores, member, actor=call.actor))


def show_period(period: AttributePeriod) -> AttributePeriodAnswer:
    until_us = None if period.until is None else period.until * HOUR_US
    return AttributePeriodAnswer.of(period, since=period.since * HOUR_US or None, until=until_us)


MEMBER = "/orgs/<organization_id>/members/<member_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", f"{MEMBER}/export", export, "Export a member's data", tag=TAG,
            who=of_member("members:write"), scope="members:read", inside="person",
            commands=("members export <member_id>",)),
    managed("POST", f"{MEMBER}/erase", erase, "Erase a member's data", tag=TAG,
            who=of_member("members:write"), scope="members:write", inside="erasure",
            audit=("member.update", "audit.redact", "member.erase"),
            commands=("members delete <member_id>",)),
)  # fmt: skip
