"""`/orgs/…/workload-identities`: rules by which tokens of identity providers call models."""

from typing import Any

import orjson
from marshmallow import fields

from gateway.accounts import projects
from gateway.accounts.keys import find as find_key
from gateway.accounts.rules import list_rules
from gateway.accounts.workload_identities import (
    MAX_KEY_SET_BYTES,
    WorkloadIdentityChange,
    WorkloadIdentityDraft,
    WorkloadIdentityInfo,
)
from gateway.callers.throttle import ThrottleGate
from gateway.errors import GatewayError, NotFound
from gateway.metering.log.search import find_last_hours
from gateway.surfaces.management.access_groups import in_organization
from gateway.surfaces.management.answers import TokenCheckAnswer, WorkloadIdentityAnswer
from gateway.surfaces.management.key_routes import show_key
from gateway.surfaces.management.limit_routes import FIELDS, LimitFields, read_limits
from gateway.surfaces.management.managed_operation import Creating, Creation, ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import Body, StatusField, TextField, describe_field
from gateway.surfaces.web.http import Operation

TAG = "Workload identities"
MAX_TOKEN_LENGTH = 16_000
CHECKS_PER_MINUTE = 30
CLAIMS = "Claims that a token must have, each with a value or a list of values; * stands for any characters."
ATTRIBUTION = "Metadata of requests: names with the claim of each, such as user and sub."
JWKS = "The issuer's key set, for an issuer that the gateway cannot reach."
JWKS_URL = "URL of the issuer's key set; default: found by OpenID discovery."


class NewWorkloadIdentity(Creating, LimitFields):
    name = TextField(1, 255, required=True, about="Name in lists and reports.")
    projectId = TextField(1, 80, required=True, about="The project of its requests.")
    issuer = TextField(
        1,
        255,
        required=True,
        about="The issuer of its tokens, as in their claim iss.",
        example="https://token.actions.githubusercontent.com",
    )
    audience = TextField(
        1, 255, required=True, about="The audience of its tokens, which no other organization may have for the issuer."
    )
    claims = fields.Dict(
        keys=fields.String(), required=True, metadata=describe_field(CLAIMS, examples=[{"sub": "repo:acme/app:*"}])
    )
    attribution = fields.Dict(
        keys=fields.String(), load_default=dict, metadata=describe_field(ATTRIBUTION, examples=[{"user": "actor"}])
    )
    jwksUrl = TextField(0, 255, load_default="", about=JWKS_URL)
    jwks = fields.Dict(keys=fields.String(), allow_none=True, metadata=describe_field(JWKS, examples=[None]))


class WorkloadIdentitySettings(Body):
    name = TextField(1, 255, about="New name.")
    claims = fields.Dict(keys=fields.String(), metadata=describe_field(CLAIMS, examples=[{"sub": "repo:acme/app:*"}]))
    attribution = fields.Dict(keys=fields.String(), metadata=describe_field(ATTRIBUTION, examples=[{"user": "actor"}]))
    jwksUrl = TextField(0, 255, about=JWKS_URL)
    jwks = fields.Dict(keys=fields.String(), allow_none=True, metadata=describe_field(JWKS, examples=[None]))
    status = StatusField(about="Tokens are refused while it is inactive.")


class TokenCheck(Body):
    token = TextField(1, MAX_TOKEN_LENGTH, required=True, about="A token of the identity provider.")


def list_identities(call: ManagedCall[str]) -> list[WorkloadIdentityAnswer]:
    """List workload identities with their keys, limits and usage."""
    infos = call.page.cut(call.management.workload_identities.list_identities(call.subject))
    return [_show(call, info) for info in infos]


def create(call: ManagedCall[str]) -> WorkloadIdentityAnswer:
    """Let tokens of an identity provider call models. Project, limits, access rules and usage are those of an API key,
    which is created with it and whose token is never shown."""
    values = call.fields
    project = projects.find_project(call.database, values["projectId"])
    if project.organization_id != call.subject:
        raise NotFound(f"There is no project {project.id} in this organization.")
    draft = WorkloadIdentityDraft(
        call.subject,
        project.id,
        values["name"],
        values["issuer"],
        values["audience"],
        values["claims"],
        values["attribution"],
        values["jwksUrl"],
        _write_keys(values.get("jwks")) or "",
        call.services.settings.security.allow_private_upstreams,
    )
    limits = read_limits({name: values[name] for name in FIELDS if name in values})
    identity = call.management.create_workload_identity(draft, limits, actor=call.actor, claim=call.claim)
    return _show(call, identity)


def find(call: ManagedCall[str]) -> WorkloadIdentityAnswer:
    """Show a workload identity with its key, limits and usage."""
    return _show_existing(call, call.params["workload_identity_id"])


def update(call: ManagedCall[str]) -> WorkloadIdentityAnswer:
    """Change a workload identity, in force everywhere when this returns. Issuer and audience never change. Limits are
    those of its key."""
    values = call.fields
    change = WorkloadIdentityChange(
        name=values.get("name"),
        claims=values.get("claims"),
        attribution=values.get("attribution"),
        jwks_url=values.get("jwksUrl"),
        jwks=_write_keys(values["jwks"]) or "" if "jwks" in values else None,
        status=values.get("status"),
        allow_private=call.services.settings.security.allow_private_upstreams,
    )
    identity_id = call.params["workload_identity_id"]
    identities = call.management.workload_identities
    return _show(call, identities.update(call.subject, identity_id, change, actor=call.actor))


def delete(call: ManagedCall[str]) -> None:
    """Delete a workload identity and its key: its tokens are refused everywhere when this returns."""
    call.management.workload_identities.delete(call.subject, call.params["workload_identity_id"], actor=call.actor)


def check(call: ManagedCall[str]) -> TokenCheckAnswer:
    """Check a token without calling a model: the workload identity that accepts it, or the reason of the refusal."""
    gate = ThrottleGate("workload tokens, checked", call.subject, CHECKS_PER_MINUTE, 60)
    call.management.throttle.take(gate)
    try:
        caller = call.services.accounts.authentication.caller(call.fields["token"].strip())
    except GatewayError as error:
        return _refuse(error.message)
    if caller.organization_id != call.subject or not caller.identity_id:
        return _refuse("It is no token that a workload identity of this organization accepts.")
    return TokenCheckAnswer.of(
        caller, accepted=True, identity_id=caller.identity_id, reason=None, metadata=dict(caller.tags)
    )


def _refuse(reason: str) -> TokenCheckAnswer:
    return TokenCheckAnswer(False, None, reason, None, {})


def _write_keys(jwks: dict[str, Any] | None) -> str | None:
    if jwks is None:
        return None
    return orjson.dumps(jwks).decode()[: MAX_KEY_SET_BYTES + 1]


def _show_existing(call: ManagedCall[str], identity_id: str) -> WorkloadIdentityAnswer:
    return _show(call, call.management.workload_identities.find(call.subject, identity_id))


def _show(call: ManagedCall[str], info: WorkloadIdentityInfo) -> WorkloadIdentityAnswer:
    key = find_key(call.database, info.api_key_id, deleted=True)
    rules = list_rules(call.database, info.organization_id, "key", key.id)
    source = info.source
    return WorkloadIdentityAnswer.of(
        info,
        project_id=key.project_id,
        issuer=source.issuer,
        jwks_url=source.jwks_url,
        jwks=orjson.loads(source.jwks) if source.jwks else None,
        key=show_key(
            key, call.management.budgets.status(key.id), rules, find_last_hours(call.database, [key.id]).get(key.id)
        ),
    )


IDENTITIES_PATH = "/orgs/<organization_id>/workload-identities"
IDENTITY_PATH = f"{IDENTITIES_PATH}/<workload_identity_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", IDENTITIES_PATH, list_identities, "List workload identities", tag=TAG,
            who=in_organization("automation:read"),
            scope="keys:read", query=ListPageQuery, inside="workloadIdentities",
            commands=("workload-identities list",)),
    managed("POST", IDENTITIES_PATH, create, "Create a workload identity", tag=TAG,
            who=in_organization("automation:write"), scope="keys:write",
            request=NewWorkloadIdentity, inside="workloadIdentity", success=201,
            audit=("workload_identity.create", "api_key.create", "member.create"),
            creates=Creation("workload_identity", _show_existing),
            commands=("workload-identities create <name> --project=projectId --issuer=issuer --audience=audience "
                      "--claims=claims --attribution=attribution --jwks-url=jwksUrl --jwks=jwks "
                      "--limit=usageLimit --client-id=clientId -> id apiKeyId",)),
    managed("GET", IDENTITY_PATH, find, "Show a workload identity", tag=TAG,
            who=in_organization("automation:read"), scope="keys:read",
            inside="workloadIdentity",
            commands=("workload-identities show <workload_identity_id>",)),
    managed("PATCH", IDENTITY_PATH, update, "Change a workload identity", tag=TAG,
            who=in_organization("automation:write"), scope="keys:write",
            request=WorkloadIdentitySettings, inside="workloadIdentity",
            audit="workload_identity.update",
            commands=("workload-identities set <workload_identity_id> --name=name --claims=claims "
                      "--attribution=attribution --jwks-url=jwksUrl --jwks=jwks",
                      "workload-identities switch <workload_identity_id> <status>")),
    managed("DELETE", IDENTITY_PATH, delete, "Delete a workload identity", tag=TAG,
            who=in_organization("automation:write"), scope="keys:write",
            message="Workload identity deleted.", audit="workload_identity.delete",
            commands=("workload-identities delete <workload_identity_id>",)),
    managed("POST", f"{IDENTITIES_PATH}/check", check, "Check a token of an identity provider", tag=TAG,
            who=in_organization("automation:read"),
            scope="keys:write", request=TokenCheck),
)  # fmt: skip
