"""`/orgs/…/scim/tokens`: tokens with which an identity provider manages members and groups over SCIM."""

from gateway.surfaces.management.access_groups import in_organization
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import Body, IsoTime, TextField
from gateway.surfaces.web.answer_structs import Answer, Time
from gateway.surfaces.web.http import Operation

TAG = "SCIM tokens"


class NewScimTokenBody(Body):
    name = TextField(1, 255, required=True, about="The name of the token, such as that of the identity provider.")
    expiresAt = IsoTime(load_default=None, about="When the token expires; default: in a year.")


class ScimTokenAnswer(Answer):
    columns = ("id", "masked_token", "expires_at", "last_used_at", "name")
    id: str
    name: str
    masked_token: str
    may_change_owners: bool
    created_by: str
    created_at: Time
    expires_at: Time
    last_used_at: Time | None


class NewScimTokenAnswer(ScimTokenAnswer):
    token: str


def list_tokens(call: ManagedCall[str]) -> list[ScimTokenAnswer]:
    """The organization's SCIM tokens, oldest first."""
    infos = call.services.accounts.scim_tokens.list_tokens(call.subject)
    return [
        ScimTokenAnswer.of(info, masked_token=info.mask, may_change_owners=info.by_owner, last_used_at=info.used_at_us)
        for info in infos
    ]


def create(call: ManagedCall[str]) -> NewScimTokenAnswer:
    """Create a SCIM token. It is shown only in this response. A token that an admin creates may neither change owners
    nor make owners."""
    created = call.services.accounts.scim_tokens.create(
        call.subject,
        call.fields["name"],
        call.fields["expiresAt"],
        by_owner=call.visitor.member(call.subject).role == "owner",
        actor=call.actor,
    )
    return NewScimTokenAnswer.of(
        created.info,
        masked_token=created.info.mask,
        may_change_owners=created.info.by_owner,
        last_used_at=None,
        token=created.token,
    )


def revoke(call: ManagedCall[str]) -> None:
    """The token is refused by every worker when this returns. Members and groups stay."""
    call.services.accounts.scim_tokens.revoke(call.subject, call.params["token_id"], actor=call.actor)


PATH = "/orgs/<organization_id>/scim/tokens"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, list_tokens, "List SCIM tokens", tag=TAG,
            who=in_organization("provisioning:read"), scope="settings:read",
            inside="tokens", commands=("scim-tokens list",)),
    managed("POST", PATH, create, "Create a SCIM token", tag=TAG,
            who=in_organization("provisioning:write"), request=NewScimTokenBody,
            inside="token", success=201, audit="scim_token.create",
            commands=("scim-tokens create <name> --expires=expiresAt -> id token",)),
    managed("DELETE", f"{PATH}/<token_id>", revoke, "Revoke a SCIM token", tag=TAG,
            who=in_organization("provisioning:write"),
            scope="settings:write", message="SCIM token revoked.", audit="scim_token.revoke",
            commands=("scim-tokens revoke <token_id>",)),
)  # fmt: skip
