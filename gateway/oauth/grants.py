"""Grants of people to applications: their authorization codes, access tokens and refresh tokens, and revocation."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers import tokens as tokens_module
from gateway.callers.authentication import PREFIX as ACCESS
from gateway.callers.models import (
    ApiKey,
    Member,
    OAuthClient,
    OAuthCode,
    OAuthGrant,
    OAuthToken,
    Organization,
    Project,
    TokenKind,
    User,
    is_suspended,
)
from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.clock import SECOND_US
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.oauth.grant_values import Consent, GrantInfo, IssuedTokens, StoredToken, ValidCode
from gateway.store.database import WHOLE, Database, ListSlice
from gateway.store.installation_identity import Secrets

# Queries for rows of grants, and changes of them within an open transaction.

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


def grant_ids_of_person(user_id: str, organization_id: str, besides: Collection[str]) -> list[str]:
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
    deleted: int = OAuthGrant.delete().where(OAuthGrant.id.in_(ids)).execute()
    return deleted


CODE = "llmgac_"
REFRESH = "llmgrt_"
CODE_LIFETIME_S = 300
ACCESS_LIFETIME_S = 3600
REFRESH_LIFETIME_S = 30 * 86_400
# A refresh token may be used again for a minute: several processes of an application refresh at the same moment, and a
# client that lost the response tries again. Large identity providers have the same window.
REUSE_WINDOW_S = 60
MAX_GRANTS = 100  # a person; a new grant deletes the oldest
# Each new grant and each revoked token notifies every worker and writes an audit entry, so they are limited.
MAX_CHANGES = 300  # a person and day
DAY_S = 86_400
MAX_LISTED = 1000  # of one list
MAX_TOKENS = 100  # rows of each kind and grant, used tokens included; new tokens delete the oldest


class AlreadyUsed(Exception):
    """The code or token was used before. It may have been stolen, so the grant was revoked."""


class Grants:
    """Grants in the store. Using a code or a refresh token is one transaction, so it works once across all workers."""

    def __init__(self, database: Database, control: Control, secrets: Secrets, throttle: Throttle) -> None:
        self._database = database
        self._control = control
        self._hash_keys = secrets.hash_keys
        self._throttle = throttle

    def keys_of(self, user_id: str, organization_ids: Collection[str]) -> list[tuple[str, str, str]]:
        """Return (id, name, project) of the person's active keys of kind user in these organizations, oldest first."""
        now = self._database.now_us()

        def read() -> list[tuple[str, str, str]]:
            reached = Project.organization.in_(list(organization_ids))
            rows = usable_keys(now, User.id == user_id, reached).order_by(ApiKey.id)
            return [(row.id, row.description, row.project_name) for row in rows]

        return self._database.read(read)

    def allow(self, consent: Consent) -> str:
        """Create a grant and return its authorization code.

        Raises NotFound if the person has no active key with the given id, and RateLimited.
        """
        self.count_change(consent.user_id)
        grant_id = ids.new("grant")
        code_id = ids.new("code")
        code = ids.token(CODE)

        def work() -> None:
            now = self._database.now_us()
            self.insert(grant_id, consent, now)
            OAuthCode.insert(
                id=code_id,
                code_hash=tokens_module.hash_token(code, self._hash_keys[0]),
                grant=grant_id,
                redirect_uri=consent.redirect_uri,
                challenge=consent.challenge,
                expires_at=now + CODE_LIFETIME_S * SECOND_US,
            ).execute()
            OAuthClient.update(used_at=now).where(OAuthClient.id == consent.client).execute()

        self._database.write(work)
        self.revoke_excess(consent.user_id)
        return code

    def insert(self, grant_id: str, consent: Consent, now: int) -> None:
        """Insert a grant within a transaction; its tokens must be issued within CODE_LIFETIME_S. Raises NotFound if the
        person has no active key with the given id."""
        key = usable_keys(now, User.id == consent.user_id, ApiKey.id == consent.key_id).first()
        if key is None:
            raise NotFound("You have no active API key with this id.")
        insert_grant(grant_id, consent, key, now, now + CODE_LIFETIME_S * SECOND_US)

    def issue(self, grant_id: str, scope: str) -> IssuedTokens:
        """Issue the first tokens of a grant of `insert`. Raises Conflict if it has ended."""

        def use() -> int:
            return 1

        return self._issue(grant_id, scope, use, "", True)

    def email_of(self, grant_id: str) -> str:
        """Return the e-mail address of the person of a grant, "" if the grant has ended."""
        person = self._first(
            User.select(User.email).join(OAuthGrant, on=OAuthGrant.user_id == User.id).where(OAuthGrant.id == grant_id)
        )
        if person is None:
            return ""
        return str(person.email)

    def find_code(self, code: str) -> ValidCode | None:
        """Return a valid code, or None. The second use of a code revokes its grant."""
        now = self._database.now_us()
        row = self._first(codes().where(OAuthCode.code_hash.in_(self._hashes(code))))
        if row is None:
            return None
        grant = row.grant
        if row.used_at:
            self.end(grant.id, "code used twice")
        if row.used_at or row.expires_at <= now:
            return None
        return ValidCode(row.id, grant.id, grant.client, grant.scope, grant.audience, row.redirect_uri, row.challenge)

    def exchange(self, code: ValidCode, *, refreshable: bool) -> IssuedTokens:
        """Exchange a code for tokens. Raises AlreadyUsed if another request has used the code."""

        def use() -> int:
            now = self._database.now_us()
            valid = (OAuthCode.id == code.id) & (OAuthCode.used_at == 0) & (OAuthCode.expires_at > now)
            changed: int = OAuthCode.update(used_at=now).where(valid).execute()
            return changed

        return self._issue(code.grant_id, code.scope, use, "code used twice", refreshable)

    def find_token(self, token: str) -> StoredToken | None:
        """Return a token of a valid grant, even if the token is used or expired."""
        now = self._database.now_us()
        row = self._first(tokens_of_grants().where(OAuthToken.token_hash.in_(self._hashes(token))))
        if row is None:
            return None
        grant = row.grant
        return StoredToken(
            row.id,
            row.kind,
            grant.id,
            grant.client,
            grant.user_id,
            row.scope,
            grant.audience,
            used=bool(row.used_at),
            expired=row.expires_at <= now,
        )

    def refresh(self, token: StoredToken, scope: str) -> IssuedTokens:
        """Replace a refresh token by new tokens; the access token has `scope`.

        The same refresh token may be used again within REUSE_WINDOW_S, until one of its successors is used. Raises
        AlreadyUsed for any later use.
        """

        def use() -> int:
            now = self._database.now_us()
            valid = (OAuthToken.id == token.id) & (OAuthToken.expires_at > now)
            if OAuthToken.update(used_at=now).where(valid, OAuthToken.used_at == 0).execute():
                return 1
            first = OAuthToken.get_or_none(valid, OAuthToken.used_at > now - REUSE_WINDOW_S * SECOND_US)
            if first is None:
                return 0
            later = (OAuthToken.grant == token.grant_id) & (OAuthToken.used_at > first.used_at)
            if OAuthToken.select().where(later).exists():
                return 0
            return 1

        return self._issue(token.grant_id, scope, use, "refresh token used twice", True)

    def generation_of(self, key_id: str) -> int:
        """Return the generation of a key, or -1 if the key does not exist."""
        row = self._first(ApiKey.select().where(ApiKey.id == key_id))
        if row is not None:
            generation: int = row.generation
            return generation
        return -1

    def issue_for_key(self, consent: Consent, generation: int | None = None) -> IssuedTokens:
        """Issue an access token without a refresh token to a holder of the API key (client credentials).

        All tokens of the same key and client share one grant, which belongs to the key's owner. `generation` is that of
        the key at the client's registration (None: the request has the key itself). Raises NotFound if the key is not
        active or has another generation.
        """
        new_id = ids.new("grant")
        lifetime_us = ACCESS_LIFETIME_S * SECOND_US
        issued = IssuedTokens(ids.token(ACCESS), "", consent.scope)

        def work() -> str:
            now = self._database.now_us()
            key = usable_keys(now, ApiKey.id == consent.key_id).first()
            if key is None or generation not in (None, key.generation):
                raise NotFound("The API key is not active.")
            same = (
                (OAuthGrant.api_key == consent.key_id)
                & (OAuthGrant.generation == key.generation)
                & (OAuthGrant.client == consent.client)
                & (OAuthGrant.audience == consent.audience)
                & (OAuthGrant.redirect_host == "")
            )
            row = OAuthGrant.select().where(same).first()
            if row is None:
                self.count_change(key.holder)
                insert_grant(new_id, replace(consent, user_id=key.holder), key, now, now + lifetime_us)
                grant_id = new_id
            else:
                grant_id = row.id
            self._insert_tokens(grant_id, issued, now)
            OAuthGrant.update(used_at=now, expires_at=now + lifetime_us).where(OAuthGrant.id == grant_id).execute()
            OAuthClient.update(used_at=now).where(OAuthClient.id == consent.client).execute()
            holder: str = key.holder
            return holder

        self.revoke_excess(self._database.write(work))
        return issued

    def end_token(self, token: StoredToken) -> None:
        """Revoke an access token, or the whole grant of a refresh token. Workers reject it when this returns."""
        if token.kind == "refresh":
            self.end(token.grant_id, "revoked by the application")
            return
        self.count_change(token.user_id)

        def work(now: int) -> None:
            if OAuthToken.delete().where(OAuthToken.id == token.id).execute():
                key = owner_of(token.grant_id)
                audit.append("oauth.revoke_token", token.grant_id, actor=key[0], at_us=now, organization_id=key[1])

        commit(self._database, self._control, work)

    def end(self, grant_id: str, why: str, actor: str = "") -> None:
        """Revoke a grant with its codes and tokens. Workers reject them when this returns.

        Does nothing if the grant does not exist. `actor` is the id of the user who revokes it, "" for the gateway.
        """

        def work(now: int) -> None:
            user_id, organization_id = owner_of(grant_id)
            if delete_grants([grant_id]):
                audit.append(
                    "oauth.revoke",
                    grant_id,
                    actor=actor or user_id,
                    at_us=now,
                    organization_id=organization_id,
                    detail={"reason": why},
                )

        commit(self._database, self._control, work)

    def list_grants(
        self,
        part: ListSlice = WHOLE,
        *,
        user_id: str = "",
        key_id: str = "",
        organization_ids: Collection[str] | None = None,
    ) -> list[GrantInfo]:
        """Return the valid grants of a person or a key, newest first; for keys of these or (None) all
        organizations. At most MAX_LISTED at once."""
        now = self._database.now_us()

        def read() -> list[GrantInfo]:
            query = grants().where(OAuthGrant.expires_at > now, OAuthGrant.generation == ApiKey.generation)
            if user_id:
                query = query.where(OAuthGrant.user_id == user_id)
            if key_id:
                query = query.where(OAuthGrant.api_key == key_id)
            if organization_ids is not None:
                projects = Project.select(Project.id).where(Project.organization.in_(list(organization_ids)))
                query = query.where(ApiKey.project.in_(projects))
            bounded = part._replace(limit=part.limit or MAX_LISTED)
            query = bounded.narrow(query.order_by(OAuthGrant.id.desc()), OAuthGrant.id, newest_first=True)
            return [info_of(row) for row in query]

        return self._database.read(read)

    def ids_of_person(self, user_id: str, organization_id: str = "", besides: Collection[str] = ()) -> list[str]:
        """Return the ids of a person's grants for keys of one or ("") all organizations, without those `besides`."""
        return self._database.read(partial(grant_ids_of_person, user_id, organization_id, besides))

    def find(self, grant_id: str) -> GrantInfo:
        """Return a grant. Raises NotFound."""
        row = self._first(grants().where(OAuthGrant.id == grant_id))
        if row is None:
            raise NotFound("There is no application with this id.")
        return info_of(row)

    def _issue(self, grant_id: str, scope: str, use: Callable[[], int], why: str, refreshable: bool) -> IssuedTokens:
        """Use a code or refresh token and insert new tokens, in one transaction: a crash loses neither alone."""
        lifetime_s = ACCESS_LIFETIME_S
        refresh_token = ""
        if refreshable:
            lifetime_s = REFRESH_LIFETIME_S
            refresh_token = ids.token(REFRESH)
        issued = IssuedTokens(ids.token(ACCESS), refresh_token, scope)

        def work() -> bool:
            if not use():
                return False
            now = self._database.now_us()
            end = now + lifetime_s * SECOND_US
            self._insert_tokens(grant_id, issued, now)
            OAuthGrant.update(used_at=now, expires_at=end).where(OAuthGrant.id == grant_id).execute()
            return True

        if not self._database.write(work):
            self.end(grant_id, why)
            raise AlreadyUsed
        return issued

    def _insert_tokens(self, grant_id: str, issued: IssuedTokens, now: int) -> None:
        grant = OAuthGrant.get_or_none(OAuthGrant.id == grant_id)
        if grant is None:
            raise Conflict("The application's access was revoked.")
        if not usable_keys(now, ApiKey.id == grant.api_key_id).exists():
            raise Conflict("The API key is not active.")
        new_tokens: list[tuple[TokenKind, str, str, int]] = [("access", issued.access, issued.scope, ACCESS_LIFETIME_S)]
        if issued.refresh:
            new_tokens.append(("refresh", issued.refresh, grant.scope, REFRESH_LIFETIME_S))
        for kind, token, scope, lifetime_s in new_tokens:
            OAuthToken.insert(
                id=ids.new("token"),
                token_hash=tokens_module.hash_token(token, self._hash_keys[0]),
                kind=kind,
                grant=grant_id,
                scope=scope,
                expires_at=now + lifetime_s * SECOND_US,
            ).execute()
            own = (OAuthToken.grant == grant_id) & (OAuthToken.kind == kind)
            newest = OAuthToken.select(OAuthToken.id).where(own).order_by(OAuthToken.id.desc()).limit(MAX_TOKENS)
            OAuthToken.delete().where(own, OAuthToken.id.not_in(newest)).execute()

    def count_change(self, user_id: str) -> None:
        """Count one change. Raises RateLimited."""
        self._throttle.take(ThrottleGate("application changes", user_id, MAX_CHANGES, DAY_S))

    def revoke_excess(self, user_id: str) -> None:
        """Revoke the person's oldest grants beyond MAX_GRANTS."""
        query = OAuthGrant.select(OAuthGrant.id).where(OAuthGrant.user_id == user_id).order_by(OAuthGrant.id.desc())
        excess = query.offset(MAX_GRANTS).limit(MAX_GRANTS)
        rows: list[OAuthGrant] = self._database.read(partial(list, excess))
        for row in rows:
            self.end(row.id, f"more than {MAX_GRANTS} applications")

    def _first(self, query: Any) -> Any:
        return self._database.read(query.first)

    def _hashes(self, token: str) -> list[str]:
        if tokens_module.well_formed(token):
            return tokens_module.candidates(token, self._hash_keys)
        return []
