"""`/orgs/…/service-accounts`: tokens for automation that belong to an organization, and to no person.

Only people create and change them: a service account could otherwise give itself what it does not have.
"""

from typing import Any

from marshmallow import fields, validate
from msgspec.structs import asdict

from gateway.accounts.rules import list_rules
from gateway.accounts.service_accounts import (
    NewServiceAccount,
    ServiceAccountChange,
    ServiceAccountDraft,
    ServiceAccountInfo,
)
from gateway.callers.rule_values import RuleInfo
from gateway.surfaces.management.access_groups import SCOPES, in_organization
from gateway.surfaces.management.answers import NewServiceAccountAnswer, ServiceAccountAnswer
from gateway.surfaces.management.managed_operation import Creating, Creation, ListPageQuery, ManagedCall, managed
from gateway.surfaces.management.rule_routes import show_rule
from gateway.surfaces.visitors.validation_schemas import Body, IsoTime, OneOf, StatusField, TextField, describe_field
from gateway.surfaces.web.http import Operation

TAG = "Service accounts"
MAX_NETWORKS = 100
SCOPES_TEXT = "Its permissions: docs/permissions.md lists the scope of each operation."


class ServiceAccountBody(Creating):
    name = TextField(1, 255, required=True, about="Name in lists and in the audit log.")
    scopes = fields.List(
        OneOf(SCOPES), required=True, validate=validate.Length(1, len(SCOPES)), metadata=describe_field(SCOPES_TEXT)
    )
    expiresAt = IsoTime(allow_none=True, about="When its token expires; default: never.")
    ipCidrs = fields.List(
        TextField(1, 64),
        load_default=(),
        validate=validate.Length(0, MAX_NETWORKS),
        metadata=describe_field("Address ranges from which it may be used; default: any."),
    )


class ServiceAccountSettings(Body):
    name = TextField(1, 255, about="New name.")
    scopes = fields.List(OneOf(SCOPES), validate=validate.Length(1, len(SCOPES)), metadata=describe_field(SCOPES_TEXT))
    status = StatusField(about="An inactive one is refused; keys that it created keep working.")
    expiresAt = IsoTime(allow_none=True, about="When its token expires; null: never.")


def list_accounts(call: ManagedCall[str]) -> list[ServiceAccountAnswer]:
    """List service accounts with their scopes, address rules and last use."""
    rules: dict[str, list[RuleInfo]] = {}
    for rule in list_rules(call.database, call.subject, "service_account"):
        rules.setdefault(rule.scope_id, []).append(rule)
    accounts = call.page.cut(call.management.service_accounts.list_accounts(call.subject))
    return [_show(info, rules.get(info.id, [])) for info in accounts]


def create(call: ManagedCall[str]) -> NewServiceAccountAnswer:
    """Create a service account. Its token is shown only in this response, and null if `clientId` found an existing
    account."""
    values = call.fields
    draft = ServiceAccountDraft(values["name"], values["scopes"], values.get("expiresAt"), values["ipCidrs"])
    account = call.management.service_accounts.create(call.subject, draft, actor=call.actor, claim=call.claim)
    return _show_new(call, account)


def find(call: ManagedCall[str]) -> ServiceAccountAnswer:
    """Show a service account with its scopes, address rules and last use."""
    return _show_one(call, call.management.service_accounts.find(call.subject, call.params["account_id"]))


def update(call: ManagedCall[str]) -> ServiceAccountAnswer:
    """Change name, scopes, status or expiry; in force everywhere when this returns."""
    values = call.fields
    change = ServiceAccountChange(
        name=values.get("name"),
        scopes=values.get("scopes"),
        status=values.get("status"),
        sets_expiry="expiresAt" in values,
        expires_at_us=values.get("expiresAt"),
    )
    account_id = call.params["account_id"]
    return _show_one(call, call.management.service_accounts.update(call.subject, account_id, change, actor=call.actor))


def roll(call: ManagedCall[str]) -> NewServiceAccountAnswer:
    """A new token; the old one is refused everywhere when this returns."""
    account = call.management.service_accounts.roll(call.subject, call.params["account_id"], actor=call.actor)
    return _show_new(call, account)


def delete(call: ManagedCall[str]) -> None:
    """Delete a service account. API keys that it created are refused from now on; their history is kept."""
    call.management.service_accounts.delete(call.subject, call.params["account_id"], actor=call.actor)


def _show(info: ServiceAccountInfo, rules: list[RuleInfo]) -> ServiceAccountAnswer:
    return ServiceAccountAnswer.of(
        info,
        masked_token=info.mask,
        last_used_at=info.last_used_at_us or None,
        iam_rules=[show_rule(rule) for rule in rules],
    )


def _show_one(call: ManagedCall[Any], info: ServiceAccountInfo) -> ServiceAccountAnswer:
    return _show(info, list_rules(call.database, info.organization_id, "service_account", info.id))


def _show_new(call: ManagedCall[str], account: NewServiceAccount) -> NewServiceAccountAnswer:
    return NewServiceAccountAnswer(**asdict(_show_one(call, account.info)), token=account.token)


def _show_existing(call: ManagedCall[str], account_id: str) -> NewServiceAccountAnswer:
    info = call.management.service_accounts.find(call.subject, account_id)
    return NewServiceAccountAnswer(**asdict(_show_one(call, info)), token=None)


ACCOUNTS_PATH = "/orgs/<organization_id>/service-accounts"
ACCOUNT_PATH = f"{ACCOUNTS_PATH}/<account_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ACCOUNTS_PATH, list_accounts, "List service accounts", tag=TAG,
            who=in_organization("automation:read"),
            scope="service_accounts:read", query=ListPageQuery, inside="serviceAccounts",
            commands=("service-accounts list",)),
    managed("POST", ACCOUNTS_PATH, create, "Create a service account", tag=TAG,
            who=in_organization("automation:write"), request=ServiceAccountBody,
            inside="serviceAccount", success=201,
            audit=("service_account.create", "member.create", "access_rule.create"),
            creates=Creation("service_account", _show_existing),
            commands=("service-accounts create <name> --scope=scopes --expires=expiresAt --ip=ipCidrs "
                      "--client-id=clientId -> id token",)),
    managed("GET", ACCOUNT_PATH, find, "Show a service account", tag=TAG,
            who=in_organization("automation:read"), scope="service_accounts:read",
            inside="serviceAccount", commands=("service-accounts show <account_id>",)),
    managed("PATCH", ACCOUNT_PATH, update, "Change a service account", tag=TAG, who=in_organization("automation:write"),
            request=ServiceAccountSettings, inside="serviceAccount", audit="service_account.update",
            commands=("service-accounts set <account_id> --name=name --scope=scopes --expires=expiresAt",
                      "service-accounts switch <account_id> <status>")),
    managed("POST", f"{ACCOUNT_PATH}/roll", roll, "Replace a service account's token", tag=TAG,
            who=in_organization("automation:write"),
            inside="serviceAccount", audit="service_account.roll",
            commands=("service-accounts roll <account_id> -> token",)),
    managed("DELETE", ACCOUNT_PATH, delete, "Delete a service account", tag=TAG,
            who=in_organization("automation:write"),
            message="Service account deleted.", audit="service_account.delete",
            commands=("service-accounts delete <account_id>",)),
)  # fmt: skip
