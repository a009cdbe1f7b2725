"""What people allowed applications: codes and tokens of a grant, each used as often as it may be, and their end."""

from collections.abc import Callable
from dataclasses import replace

from gateway import ids
from gateway.accounts import audit, tokens
from gateway.accounts.changes import commit
from gateway.accounts.models import ApiKey, User
from gateway.accounts.throttle import Throttle, ThrottleGate
from gateway.clock import SECOND_US
from gateway.control.version import Control
from gateway.errors import Conflict, NotFound
from gateway.oauth import grant_rows
from gateway.oauth.access_tokens import PREFIX as ACCESS
from gateway.oauth.grant_values import Consent, FoundCode, FoundToken, GrantInfo, IssuedTokens
from gateway.oauth.models import OAuthClient, OAuthCode, OAuthGrant, OAuthToken, TokenKind
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

CODE = "llmgac_"
REFRESH = "llmgrt_"
CODE_S = 300
ACCESS_S = 3600
REFRESH_S = 30 * 86_400
# Programs of one person share what they keep, and refresh at the same moment: whoever comes so soon after the first, or
# did not hear the answer and asks again, is no thief. The window of the large identity providers.
AGAIN_S = 60
MOST_GRANTS = 100  # of one person; the oldest goes
# New grants and ended tokens are told to every worker and the audit log: so many a person and day.
MOST_CHANGES = 300
DAY_S = 86_400
MOST_TOKENS = 100  # rows of each kind of one grant, spent ones included; the oldest go


class Spent(Exception):
    """Somebody used it before: whoever comes second may be a thief, so the grant has ended."""


class Grants:
    """All grants, in the store: each use of a code or a refresh token is one transaction, on whatever worker."""

    def __init__(self, database: Database, control: Control, secrets: Secrets, throttle: Throttle) -> None:
        self._database = database
        self._control = control
        self._hash_keys = secrets.hash_keys
        self._throttle = throttle

    def keys_of(self, user_id: str) -> list[tuple[str, str, str]]:
        """The keys that a person can bind a grant to: (id, name, project), of kind user and in force, oldest first."""
        now = self._database.now_us()
        return self._database.read(
            lambda: [
                (row.id, row.description, row.project_name)
                for row in grant_rows.usable_keys(now, User.id == user_id).order_by(ApiKey.id)
            ]
        )

    def allow(self, consent: Consent) -> str:
        """A code for what somebody allows. NotFound: the key is not theirs, or not in force. RateLimited."""
        self._pace(consent.user_id)
        grant_id = ids.new("grant")
        code_id = ids.new("code")
        code = ids.token(CODE)

        def work() -> None:
            now = self._database.now_us()
            key = grant_rows.usable_keys(now, User.id == consent.user_id, ApiKey.id == consent.key_id).first()
            if key is None:
                raise NotFound("There is no active API key of yours with this id.")
            grant_rows.insert_grant(grant_id, consent, key, now, now + CODE_S * SECOND_US)
            OAuthCode.insert(
                id=code_id,
                code_hash=tokens.hash_token(code, self._hash_keys[0]),
                grant=grant_id,
                redirect_uri=consent.redirect_uri,
                challenge=consent.challenge,
                expires_at=now + CODE_S * SECOND_US,
            ).execute()
            OAuthClient.update(used_at=now).where(OAuthClient.id == consent.client).execute()

        self._database.write(work)
        self._make_room(consent.user_id)
        return code

    def find_code(self, code: str) -> FoundCode | None:
        """A live code. One that was used before ends its grant and counts as none."""
        hashes = self._hashes(code)
        now = self._database.now_us()
        row = self._database.read(lambda: grant_rows.codes().where(OAuthCode.code_hash.in_(hashes)).first())
        if row is None:
            return None
        grant = row.grant
        if row.used_at:
            self.end(grant.id, "code used twice")
        if row.used_at or row.expires_at <= now:
            return None
        place = grant.client, grant.scope, grant.audience, row.redirect_uri, row.challenge
        return FoundCode(row.id, grant.id, *place)

    def exchange(self, code: FoundCode, *, refreshable: bool) -> IssuedTokens:
        """Tokens for a code, once. Spent: it was used meanwhile."""

        def use() -> int:
            now = self._database.now_us()
            live = (OAuthCode.id == code.id) & (OAuthCode.used_at == 0) & (OAuthCode.expires_at > now)
            return OAuthCode.update(used_at=now).where(live).execute()

        return self._issue(code.grant_id, code.scope, use, "code used twice", refreshable)

    def find_token(self, token: str) -> FoundToken | None:
        """A token of a grant that holds, used or over though it may be."""
        hashes = self._hashes(token)
        now = self._database.now_us()
        row = self._database.read(
            lambda: grant_rows.tokens_of_grants().where(OAuthToken.token_hash.in_(hashes)).first()
        )
        if row is None:
            return None
        grant = row.grant
        over = row.expires_at <= now
        place = grant.id, grant.client, grant.user_id, row.scope, grant.audience
        return FoundToken(row.id, row.kind, *place, spent=bool(row.used_at), over=over)

    def refresh(self, token: FoundToken, scope: str) -> IssuedTokens:
        """New tokens in place of a refresh token; the access token for `scope`. Each use within AGAIN_S of the first
        gets its own, until one of those is used. Spent: it was used before that."""

        def use() -> int:
            now = self._database.now_us()
            live = (OAuthToken.id == token.id) & (OAuthToken.expires_at > now)
            if OAuthToken.update(used_at=now).where(live, OAuthToken.used_at == 0).execute():
                return 1
            first = OAuthToken.get_or_none(live, OAuthToken.used_at > now - AGAIN_S * SECOND_US)
            if first is None:
                return 0
            followed = (OAuthToken.grant == token.grant_id) & (OAuthToken.used_at > first.used_at)
            if OAuthToken.select().where(followed).exists():
                return 0
            return 1

        return self._issue(token.grant_id, scope, use, "refresh token used twice", True)

    def generation_of(self, key_id: str) -> int:
        """The generation of a key that is there."""
        row = self._database.read(lambda: ApiKey.get_or_none(ApiKey.id == key_id))
        if row is not None:
            return row.generation
        return -1

    def hold(self, consent: Consent, generation: int | None = None) -> IssuedTokens:
        """An access token for who has the key itself, or a client that stands for it; without refreshing. There is one
        grant for each of them, whose person is the key's. NotFound: the key is not in force, or not of that generation
        any more."""
        new_id = ids.new("grant")
        now_s = ACCESS_S * SECOND_US
        issued = IssuedTokens(ids.token(ACCESS), "", consent.scope)

        def work() -> str:
            now = self._database.now_us()
            key = grant_rows.usable_keys(now, ApiKey.id == consent.key_id).first()
            if key is None or generation not in (None, key.generation):
                raise NotFound("The API key is not in force.")
            same = (
                (OAuthGrant.api_key == consent.key_id)
                & (OAuthGrant.generation == key.generation)
                & (OAuthGrant.client == consent.client)
                & (OAuthGrant.audience == consent.audience)
                & (OAuthGrant.redirect_host == "")
            )
            row = OAuthGrant.select().where(same).first()
            if row is None:
                self._pace(key.holder)
                grant_rows.insert_grant(new_id, replace(consent, user_id=key.holder), key, now, now + now_s)
            grant_id = new_id if row is None else row.id
            self._insert_tokens(grant_id, issued, now)
            OAuthGrant.update(used_at=now, expires_at=now + now_s).where(OAuthGrant.id == grant_id).execute()
            OAuthClient.update(used_at=now).where(OAuthClient.id == consent.client).execute()
            holder: str = key.holder
            return holder

        self._make_room(self._database.write(work))
        return issued

    def end_token(self, token: FoundToken) -> None:
        """End one access token, or with a refresh token its whole grant; refused everywhere when this returns."""
        if token.kind == "refresh":
            self.end(token.grant_id, "revoked by the application")
            return
        self._pace(token.user_id)

        def work(now: int) -> None:
            if OAuthToken.delete().where(OAuthToken.id == token.id).execute():
                key = grant_rows.owner_of(token.grant_id)
                audit.append("oauth.revoke_token", token.grant_id, actor=key[0], at_us=now, organization_id=key[1])

        commit(self._database, self._control, work)

    def end(self, grant_id: str, why: str, actor: str = "") -> None:
        """End a grant with all of its codes and tokens; refused everywhere when this returns. Nothing happens where it
        has ended. `actor`: who wants it, "" for the rules."""

        def work(now: int) -> None:
            user_id, organization_id = grant_rows.owner_of(grant_id)
            if grant_rows.delete_grants([grant_id]):
                audit.append(
                    "oauth.revoke",
                    grant_id,
                    actor=actor or user_id,
                    at_us=now,
                    organization_id=organization_id,
                    detail={"reason": why},
                )

        commit(self._database, self._control, work)

    def list_grants(self, *, user_id: str = "", key_id: str = "") -> list[GrantInfo]:
        """Grants that hold, of a person or a key, newest first."""
        now = self._database.now_us()

        def read() -> list[GrantInfo]:
            query = grant_rows.grants().where(OAuthGrant.expires_at > now, OAuthGrant.generation == ApiKey.generation)
            if user_id:
                query = query.where(OAuthGrant.user_id == user_id)
            if key_id:
                query = query.where(OAuthGrant.api_key == key_id)
            return [grant_rows.info_of(row) for row in query.order_by(OAuthGrant.id.desc()).limit(1000)]

        return self._database.read(read)

    def find(self, grant_id: str) -> GrantInfo:
        """A grant. NotFound."""
        row = self._database.read(lambda: grant_rows.grants().where(OAuthGrant.id == grant_id).first())
        if row is None:
            raise NotFound("There is no such application.")
        return grant_rows.info_of(row)

    def _issue(self, grant_id: str, scope: str, use: Callable[[], int], why: str, refreshable: bool) -> IssuedTokens:
        """Use something and insert what it gives in one transaction: a crash leaves both or neither."""
        issued = IssuedTokens(ids.token(ACCESS), ids.token(REFRESH) if refreshable else "", scope)

        def work() -> bool:
            if not use():
                return False
            now = self._database.now_us()
            end = now + (REFRESH_S if refreshable else ACCESS_S) * SECOND_US
            self._insert_tokens(grant_id, issued, now)
            OAuthGrant.update(used_at=now, expires_at=end).where(OAuthGrant.id == grant_id).execute()
            return True

        if not self._database.write(work):
            self.end(grant_id, why)
            raise Spent
        return issued

    def _insert_tokens(self, grant_id: str, issued: IssuedTokens, now: int) -> None:
        grant = OAuthGrant.get_or_none(OAuthGrant.id == grant_id)
        if grant is None:
            raise Conflict("The application was signed out meanwhile.")
        if not grant_rows.usable_keys(now, ApiKey.id == grant.api_key_id).exists():
            raise Conflict("The API key is not in force.")
        given: list[tuple[TokenKind, str, str, int]] = [("access", issued.access, issued.scope, ACCESS_S)]
        if issued.refresh:
            given.append(("refresh", issued.refresh, grant.scope, REFRESH_S))
        for kind, token, scope, life_s in given:
            OAuthToken.insert(
                id=ids.new("token"),
                token_hash=tokens.hash_token(token, self._hash_keys[0]),
                kind=kind,
                grant=grant_id,
                scope=scope,
                expires_at=now + life_s * SECOND_US,
            ).execute()
            own = (OAuthToken.grant == grant_id) & (OAuthToken.kind == kind)
            newest = OAuthToken.select(OAuthToken.id).where(own).order_by(OAuthToken.id.desc()).limit(MOST_TOKENS)
            OAuthToken.delete().where(own, OAuthToken.id.not_in(newest)).execute()

    def _pace(self, user_id: str) -> None:
        """Count one change. RateLimited."""
        self._throttle.take(ThrottleGate("applications and tokens, changed", user_id, MOST_CHANGES, DAY_S))

    def _make_room(self, user_id: str) -> None:
        """The oldest grants of a person beyond the cap end."""
        query = OAuthGrant.select(OAuthGrant.id).where(OAuthGrant.user_id == user_id).order_by(OAuthGrant.id.desc())
        for grant_id in self._database.read(lambda: [row.id for row in query.offset(MOST_GRANTS).limit(MOST_GRANTS)]):
            self.end(grant_id, f"more than {MOST_GRANTS} applications")

    def _hashes(self, token: str) -> list[str]:
        if tokens.well_formed(token):
            return tokens.candidates(token, self._hash_keys)
        return []
