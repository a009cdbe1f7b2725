"""The JSON presentation of the management API: members as the public client reads them, amounts as decimal strings in
USD."""

from collections.abc import Iterable
from typing import Any

from gateway.accounts.custom_providers import CustomProviderInfo
from gateway.accounts.invitations import InvitationInfo
from gateway.accounts.key_caps import KeyCaps, OwnCaps
from gateway.accounts.keys import KeyInfo
from gateway.accounts.members import MemberInfo
from gateway.accounts.organizations import OrganizationInfo
from gateway.accounts.projects import ProjectInfo, name_markers
from gateway.accounts.provider_keys import ProviderKeyInfo
from gateway.accounts.rule_values import RuleInfo
from gateway.accounts.skills import SkillInfo
from gateway.accounts.teams import TeamInfo
from gateway.admin.key_use import MOST_SHOWN, SUGGESTED, KeyUse, switch_command
from gateway.clock import to_iso
from gateway.limits.budgets import Status
from gateway.limits.ledger import Balance
from gateway.money import format_usd

# There are no plans to buy: the operator of the installation decides what is possible.
PLAN = "self-hosted"
# Clients know active, inactive and deleted; `state` says why a key is refused.
KEY_STATUS = {"expired": "inactive", "revoked": "inactive"}
ROUTING = "routing"


def usd(amount_nusd: int | None) -> str | None:
    if amount_nusd is None:
        return None
    return format_usd(amount_nusd)


def iso(at_us: int | None) -> str | None:
    if at_us is None:
        return None
    return to_iso(at_us)


def show_limits(status: Status) -> dict[str, Any]:
    """Limits and counters of a key, member or team."""
    limits = status.limits
    period = status.limits.period
    return {
        "usage": format_usd(status.usage_nusd),
        "usageLimit": usd(limits.total_nusd),
        "periodUsageLimit": usd(limits.period_nusd),
        "periodUsageDurationValue": period.amount if period else None,
        "periodUsageDurationUnit": period.unit if period else None,
        "currentPeriodUsage": format_usd(status.period_usage_nusd),
        "currentPeriodStartedAt": iso(status.period_started_us),
        "currentPeriodResetAt": iso(status.period_resets_us),
        "alertThresholds": list(limits.alert_at),
    }


def show_organization(info: OrganizationInfo, role: str, balance: Balance | None) -> dict[str, Any]:
    """`balance` None: the visitor may not see it."""
    return {
        "id": info.id,
        "name": info.name,
        "plan": PLAN,
        "status": info.status,
        "role": role,
        "credits": usd(balance.balance_nusd) if balance else None,
        "createdAt": to_iso(info.created_at_us),
    }


def show_balance(balance: Balance) -> dict[str, Any]:
    return {
        "credits": format_usd(balance.balance_nusd),
        "funded": format_usd(balance.funded_nusd),
        "spent": format_usd(balance.spent_nusd),
        "reserved": format_usd(balance.reserved_nusd),
        "unlimited": balance.unlimited,
    }


def show_member(info: MemberInfo, status: Status) -> dict[str, Any]:
    return {
        "id": info.id,
        "userId": info.user_id,
        "email": info.email,
        "name": info.name,
        "role": info.role,
        "status": info.status,
        **show_limits(status),
    }


def show_team(info: TeamInfo, status: Status) -> dict[str, Any]:
    return {
        "id": info.id,
        "organizationId": info.organization_id,
        "name": info.name,
        "memberIds": list(info.member_ids),
        **show_limits(status),
    }


def show_key_caps(own: OwnCaps, caps: KeyCaps, count: int) -> dict[str, Any]:
    """The caps in force (null = none), how many active keys there are, and the organization's own values."""
    return {
        "maxKeys": caps.total or None,
        "maxKeysPerMember": caps.member or None,
        "currentCount": count,
        "own": {"maxKeys": own.total, "maxKeysPerMember": own.member},
    }


def show_invitation(info: InvitationInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "organizationId": info.organization_id,
        "organizationName": info.organization_name,
        "email": info.email,
        "role": info.role,
        "status": info.status,
        "invitedBy": info.inviter or None,
        "createdAt": to_iso(info.created_at_us),
        "expiresAt": to_iso(info.expires_at_us),
    }


def show_project(info: ProjectInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "organizationId": info.organization_id,
        "name": info.name,
        "mode": info.mode,
        "status": info.status,
        "cachingEnabled": info.cache_enabled,
        "cacheDurationSeconds": info.cache_ttl_s,
        "retention": info.retention,
        "retentionDays": info.retention_days,
        "cacheMarkers": name_markers(info.cache_markers),
        "routing": info.settings.get(ROUTING, "auto"),
        "hasCallbackSecret": info.has_callback_secret,
        "createdAt": to_iso(info.created_at_us),
    }


def show_key(info: KeyInfo, status: Status, rules: Iterable[RuleInfo]) -> dict[str, Any]:
    """A key as the public client reads it, with the rules at the key itself; its token appears in the answers to create
    and roll only."""
    return {
        "id": info.id,
        "description": info.description,
        "status": KEY_STATUS.get(info.state, info.state) if info.owner_active else "inactive",
        "state": info.state,
        "ownerActive": info.owner_active,
        "kind": info.kind,
        "maskedToken": info.mask,
        "projectId": info.project_id,
        "createdBy": info.creator_id,
        "creator": {"id": info.creator_id, "email": info.creator_email, "name": info.creator_name},
        "expiresAt": iso(info.expires_at_us),
        "createdAt": to_iso(info.created_at_us),
        "updatedAt": to_iso(info.updated_at_us),
        "iamRules": [show_rule(rule) for rule in rules],
        **show_limits(status),
    }


def show_rule(info: RuleInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "scope": info.scope,
        "scopeId": info.scope_id,
        "ruleType": info.type,
        "ruleValue": dict(info.value),
        "status": "active" if info.active else "inactive",
        "createdAt": to_iso(info.created_at_us),
    }


def show_provider_key(info: ProviderKeyInfo, spent_nusd: int) -> dict[str, Any]:
    """`spent_nusd` is what was spent with it while it had a bound."""
    return {
        "id": info.id,
        "organizationId": info.organization_id,
        "provider": info.provider,
        "name": info.label,
        "maskedToken": info.mask,
        "baseUrl": info.base_url,
        "region": info.region,
        "allowedModels": list(info.allowed_models),
        "maxSpend": usd(info.max_spend_nusd),
        "spent": format_usd(spent_nusd),
        "status": info.status,
    }


def show_key_use(use: KeyUse) -> dict[str, Any]:
    """The first MOST_SHOWN projects of either kind."""
    return {
        "usedBy": [_show_use(one) for one in use.used_by[:MOST_SHOWN]],
        "unusedBy": [
            {
                **_show_use(one),
                "switchRequest": {"method": "PATCH", "path": f"/projects/{one.id}", "body": {"mode": SUGGESTED}},
                "switchCommand": switch_command(one),
            }
            for one in use.unused_by[:MOST_SHOWN]
        ],
    }


def _show_use(project: ProjectInfo) -> dict[str, str]:
    return {"id": project.id, "name": project.name, "mode": project.mode}


def show_custom_provider(info: CustomProviderInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "organizationId": info.organization_id,
        "name": info.name,
        "providerId": info.provider_id,
        "baseUrl": info.base_url,
        "models": [dict(model) for model in info.models],
    }


def show_skill(info: SkillInfo) -> dict[str, Any]:
    return {"id": info.id, "name": info.name, "description": info.description, "enabled": info.enabled}


def show_whole_skill(info: SkillInfo) -> dict[str, Any]:
    return {**show_skill(info), "content": info.content, "files": [dict(file) for file in info.files]}
