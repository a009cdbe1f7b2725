"""Queries for rows of grants, and changes of them within an open transaction."""

from collections.abc import Collection, Sequence
from typing import Any

from gateway.accounts import audit
from gateway.accounts.models import ApiKey, Member, Organization, Project, User, is_suspended
from gateway.errors import InvalidRequest
from gateway.oauth.grant_values import Consent, GrantInfo
from gateway.oauth.models import OAuthCode, OAuthGrant, OAuthToken

MAX_AUDIENCE_LENGTH = 512


def usable_keys(now: int, *conditions: Any) -> Any:
    """Select active keys of kind user that match `conditions`.

    Each row also has the user's id (`holder`), the name of the project (`project_name`) and the id of the organization
    (`owner`).
    """
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
            ~is_suspended(),
            User.status == "active",
            *conditions,
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
    return GrantInfo(
        id=row.id,
        client=row.client,
        client_name=row.client_name,
        redirect_host=row.redirect_host,
        scopes=tuple(row.scope.split()),
        key_id=row.api_key_id,
        key_name=row.key_name,
        user_id=row.user_id,
        created_at_us=row.created_at,
        used_at_us=row.used_at,
        expires_at_us=row.expires_at,
    )


def insert_grant(grant_id: str, consent: Consent, key: Any, now: int, end: int) -> None:
    if len(consent.audience) > MAX_AUDIENCE_LENGTH:
        raise InvalidRequest("The URL of this gateway is too long.", param="resource")
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
        team=consent.team_id,
        created_at=now,
        used_at=now,
        expires_at=end,
    ).execute()
    detail = {"client": consent.client, "name": consent.client_name, "key": key.id, "scope": consent.scope}
    audit.append("oauth.grant", grant_id, actor=consent.user_id, at_us=now, organization_id=key.owner, detail=detail)


def ids_of_person(user_id: str, organization_id: str, besides: Collection[str]) -> list[str]:
    """Return the ids of a person's grants for keys of one or ("") all organizations, without those `besides`."""
    rows = OAuthGrant.select(OAuthGrant.id).join(ApiKey).join(Project)
    rows = rows.where(OAuthGrant.user_id == user_id, Project.organization.not_in(list(besides)))
    if organization_id:
        rows = rows.where(Project.organization == organization_id)
    return [row.id for row in rows]


def owner_of(grant_id: str) -> tuple[str, str]:
    """Return the ids of the person and the organization of a grant; both are "" if the grant does not exist."""
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
    """Delete grants with their codes and tokens, within a transaction. Return the number of grants."""
    if not grant_ids:
        return 0
    ids = list(grant_ids)
    OAuthToken.delete().where(OAuthToken.grant.in_(ids)).execute()
    OAuthCode.delete().where(OAuthCode.grant.in_(ids)).execute()
    return OAuthGrant.delete().where(OAuthGrant.id.in_(ids)).execute()
