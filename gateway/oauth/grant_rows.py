"""Rows of grants: what is asked of the store, and what is written within an open transaction."""

from collections.abc import Sequence
from typing import Any

from gateway.accounts import audit
from gateway.accounts.models import ApiKey, Member, Organization, Project, User
from gateway.errors import InvalidRequest
from gateway.oauth.grant_values import Consent, GrantInfo
from gateway.oauth.models import OAuthCode, OAuthGrant, OAuthToken

LONGEST_AUDIENCE = 512


def usable_keys(now: int, *wanted: Any) -> Any:
    """Keys in force that stand for a person, narrowed by `wanted`; each with its person, the name of its project and
    its organization."""
    return (
        ApiKey.select(
            ApiKey, User.id.alias("holder"), Project.name.alias("project_name"), Project.organization.alias("owner")
        )
        .join(Project)
        .join(Organization)
        .switch(ApiKey)
        .join(Member)
        .join(User)
        .where(
            ApiKey.kind == "user",
            ApiKey.status == "active",
            ApiKey.expires_at.is_null() | (ApiKey.expires_at > now),
            Project.status == "active",
            Organization.status == "active",
            Member.status == "active",
            User.status == "active",
            *wanted,
        )
        .objects()
    )


def codes() -> Any:
    return (
        OAuthCode.select(OAuthCode, OAuthGrant)
        .join(OAuthGrant)
        .join(ApiKey)
        .where(OAuthGrant.generation == ApiKey.generation)
    )


def tokens_of_grants() -> Any:
    return (
        OAuthToken.select(OAuthToken, OAuthGrant)
        .join(OAuthGrant)
        .join(ApiKey)
        .where(OAuthGrant.generation == ApiKey.generation, ApiKey.status == "active")
    )


def grants() -> Any:
    return OAuthGrant.select(OAuthGrant, ApiKey.description.alias("key_name")).join(ApiKey).objects()


def info_of(row: Any) -> GrantInfo:
    whose = row.api_key_id, row.key_name, row.user_id
    times = row.created_at, row.used_at, row.expires_at
    return GrantInfo(row.id, row.client, row.client_name, row.redirect_host, tuple(row.scope.split()), *whose, *times)


def insert_grant(grant_id: str, consent: Consent, key: Any, now: int, end: int) -> None:
    if len(consent.audience) > LONGEST_AUDIENCE:
        raise InvalidRequest("The address of this gateway is too long.", param="resource")
    OAuthGrant.insert(
        id=grant_id,
        api_key=key.id,
        generation=key.generation,
        user_id=consent.user_id,
        client=consent.client,
        client_name=consent.client_name,
        redirect_host=consent.redirect_host,
        scope=consent.scope,
        audience=consent.audience,
        created_at=now,
        used_at=now,
        expires_at=end,
    ).execute()
    detail = {"client": consent.client, "name": consent.client_name, "key": key.id, "scope": consent.scope}
    audit.append("oauth.grant", grant_id, actor=consent.user_id, at_us=now, organization_id=key.owner, detail=detail)


def owner_of(grant_id: str) -> tuple[str, str]:
    """The person and the organization of a grant; "" where it is gone."""
    row = (
        OAuthGrant.select(OAuthGrant.user_id, Project.organization.alias("owner"))
        .join(ApiKey)
        .join(Project)
        .where(OAuthGrant.id == grant_id)
        .objects()
        .first()
    )
    if row is not None:
        return (row.user_id, row.owner)
    return ("", "")


def delete_grants(grant_ids: Sequence[str]) -> int:
    """Grants with what hangs on them, within a transaction; how many."""
    if not grant_ids:
        return 0
    wanted = list(grant_ids)
    OAuthToken.delete().where(OAuthToken.grant.in_(wanted)).execute()
    OAuthCode.delete().where(OAuthCode.grant.in_(wanted)).execute()
    return OAuthGrant.delete().where(OAuthGrant.id.in_(wanted)).execute()
