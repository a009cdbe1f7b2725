"""From an API key or an access token to its caller: from memory under the control lease, from the store on a miss."""

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import peewee
from msgspec import Struct
from msgspec.structs import replace

from gateway.callers import page_tokens
from gateway.callers import tokens as tokens_module
from gateway.callers.access import Level
from gateway.callers.compliance import read_policy
from gateway.callers.issuer_keys import is_signed_token
from gateway.callers.models import (
    AccessRule,
    ApiKey,
    Member,
    OAuthGrant,
    OAuthToken,
    Organization,
    Project,
    SessionBudget,
    Team,
    TeamMember,
    User,
    is_suspended,
)
from gateway.callers.permissions import reach_of
from gateway.callers.rule_values import RuleInfo, compile_levels
from gateway.callers.tokens import renew_hash
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control, VersionedCache
from gateway.errors import Forbidden, GatewayError, Gone, Unauthenticated, Unavailable
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

T = TypeVar("T")
# read(token, control version) → the caller of a signed token, or a refusal that may be cached.
SignedTokenReader = Callable[[str, int], "Caller | CachedRefusal"]

CACHE_SIZE = 50_000  # callers a worker remembers, about 1 KB each
REFUSAL_CACHE_SIZE = 10_000
LOOKUPS = 4  # reads at a time: a flood of unknown tokens must leave connections to others
LOOKUP_WAIT_S = 2.0

MISSING = "The API key is missing: send Authorization: Bearer <key> or x-api-key: <key>."
UNKNOWN = "Incorrect API key provided. Check that the key is complete and that this gateway issued it."
FOREIGN_KEY_MESSAGE = (
    f"Incorrect API key provided. Keys of this gateway begin with {tokens_module.PREFIXES['user']}; this one does not."
)
MANAGING = "The token of a service account cannot call models; create an API key with it and use that."
EXPIRED = "The API key has expired; activate it with a new expiry or use another one."
PAGE_ENDED = "The token of this page has ended. Reload the page, and sign in if it asks for it."
SESSION_LOOK_US = SECOND_US  # as long as the control version is trusted
LIVE_SESSION = (
    "SELECT 1 FROM session s LEFT JOIN sso_login l ON l.id = s.sso_login WHERE s.id = ? AND s.expires_at > ? "
    "AND (s.sso_login IS NULL OR l.valid_until > ?)"
)
OWN_PREFIXES = tuple(tokens_module.PREFIXES.values())

SUSPENDED = (
    "The identity provider of the organization refuses the member who owns the API key. The key works again after the "
    "member signs in."
)
TOKEN_EXPIRED = "The token has expired. Request a new one from the identity provider."
KEY_REFUSALS = {
    "inactive": "The API key is inactive; activate it or use another one.",
    "revoked": "The API key was revoked; use another one.",
    "deleted": "The API key was deleted; use another one.",
}


class SessionLookDue(Exception):
    """The session of a page token must be checked again."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, with all that the request path needs of its key, project and rules.

    `expires_at_us` None = never. `rules` are the compiled levels of access.py, () when nothing is restricted. `teams`
    are (id, name) of the caller's teams that have spending limits, in the order of their ids. `retention` is none or
    retain, `cache_markers` automatic, client or disabled, `mode` credits, api-keys or hybrid. `grant_id` and `scopes`
    are those of the access token that a request came with; "" and () where it came with the API key itself. `team_id`
    is the team that the person chose when they signed in a device, "" without. `identity_id` is the workload identity
    of a signed token, and `tags` the metadata that its claims, or the
    settings of the key, give to requests. `session_nusd` and `run_nusd` are the
    budgets of each session and run: the lower one of key and project, None without. `session_id` is that of the
    visitor of a page token, which is read again after `expires_at_us`. `version` is the control version
    under which it was read. `kept` is what others worked out of all this for the next request: it ends with the
    caller, and so with the version.
    """

    key_id: str
    key_kind: str
    key_name: str
    organization_id: str
    project_id: str
    user_id: str
    member_id: str
    role: str
    mode: str
    cache_enabled: bool = False
    cache_ttl_s: int = 60
    retention: str = "none"
    retention_days: int = 30
    cache_markers: str = "automatic"
    settings: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Level, ...] = ()
    teams: tuple[tuple[str, str], ...] = ()
    expires_at_us: int | None = None
    version: int = 0
    grant_id: str = ""
    scopes: tuple[str, ...] = ()
    team_id: str = ""
    session_nusd: int | None = None
    run_nusd: int | None = None
    identity_id: str = ""
    session_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def by_token(self) -> bool:
        """Return whether the request came with an access token: then there is no API key to pass on."""
        return bool(self.grant_id)


class CachedRefusal(Struct, frozen=True):
    """A cached refusal, from which each request gets a new exception."""

    kind: type[GatewayError]
    message: str
    code: str | None = None
    ids: tuple[str, str, str, str] | None = None

    def error(self) -> GatewayError:
        error = self.kind(self.message, code=self.code)
        error.caller_ids = self.ids
        return error


class Authentication:
    """Knows callers by their tokens. Memory holds digests, never a token."""

    def __init__(self, database: Database, control: Control, secrets: Secrets, clock: Clock) -> None:
        self._database = database
        self._control = control
        self._hash_keys = secrets.hash_keys
        self._clock = clock
        self._memory: VersionedCache[bytes, Caller | CachedRefusal] = VersionedCache(
            control, CACHE_SIZE, _is_minor, REFUSAL_CACHE_SIZE
        )
        self._lookups = threading.BoundedSemaphore(LOOKUPS)
        self._read_signed: SignedTokenReader | None = None

    def accept_signed_tokens(self, read: SignedTokenReader) -> None:
        """Let `read` find the callers of signed tokens (JWT), which are no API keys."""
        self._read_signed = read

    def caller(self, token: str) -> Caller:
        """The caller of `token`.

        A signed token of an identity provider (JWT) gives the caller of the workload identity that accepts it.

        Unauthenticated (401, invalid_api_key): missing, unknown, inactive, expired, revoked or deleted key, or one
        whose member or user was deactivated. Gone (410): archived project, blocked organization. Unavailable (503):
        the store cannot be asked; never a 401 then.
        """
        # An unkeyed digest is enough for memory: it stands for 240 random bits and never leaves the process.
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        try:
            return self._judge_now(self._memory.get(digest, lambda version: self._read(token, version)))
        except SessionLookDue:
            self._memory.drop(digest)
        found = self._memory.get(digest, lambda version: self._read(token, version))
        if isinstance(found, CachedRefusal):
            raise found.error()
        return found

    def caller_of_key(self, key_id: str) -> Caller:
        """The caller of the key with this id, for who is known by something that is bound to it. As `caller`."""

        def read(version: int) -> Caller | CachedRefusal:
            return _judge(self.look_up(lambda: list(_query(ApiKey.id == key_id))), version)

        # No digest of a token is as long as that.
        return self._judge_now(self._memory.get(b"the key " + key_id.encode(), read))

    def _judge_now(self, caller: Caller | CachedRefusal) -> Caller:
        if isinstance(caller, CachedRefusal):
            raise caller.error()
        if caller.expires_at_us is not None and self._clock.now_us() >= caller.expires_at_us:
            if caller.session_id:
                raise SessionLookDue
            if caller.identity_id:
                raise CachedRefusal(Unauthenticated, TOKEN_EXPIRED, "invalid_token", _whose(caller)).error()
            raise CachedRefusal(Unauthenticated, EXPIRED, None, _whose(caller)).error()
        return caller

    def holds(self, caller: Caller) -> bool:
        """Return whether the token that gave `caller` would give it now, so that it needs no look. Unavailable."""
        until = caller.expires_at_us
        return self._control.check() == caller.version and (until is None or self._clock.now_us() < until)

    def _read(self, token: str, version: int) -> Caller | CachedRefusal:
        if not token:
            return CachedRefusal(Unauthenticated, MISSING)
        if self._read_signed is not None and is_signed_token(token):
            return self._read_signed(token, version)
        unknown = CachedRefusal(Unauthenticated, _explain_unknown(token))
        if not tokens_module.well_formed(token):
            return unknown
        if token.startswith(page_tokens.PREFIX):
            return self._read_page_token(token, version) or unknown
        hashes = tokens_module.candidates(token, self._hash_keys)
        rows = self.look_up(lambda: list(_query(ApiKey.token_hash.in_(hashes))))
        if rows:
            renew_hash(self._database, ApiKey.token_hash, hashes)
            return _judge(rows, version)
        return unknown

    def make_page_token(self, key_id: str, session_id: str, expires_at_us: int) -> str:
        """Return a token that stands for a key until then, or until the end of a session (page_tokens.py). The caller
        has checked whose key it is."""
        return page_tokens.make(page_tokens.PageToken(key_id, session_id, expires_at_us), self._hash_keys[0])

    def _read_page_token(self, text: str, version: int) -> "Caller | CachedRefusal | None":
        token = page_tokens.read(text, self._hash_keys)
        if token is None:
            return None
        now = self._clock.now_us()
        if now >= token.expires_at_us:
            return CachedRefusal(Unauthenticated, PAGE_ENDED)

        def read() -> tuple[bool, list[Any]]:
            signed_in = self._database.fetch(LIVE_SESSION, (token.session_id, now, now))
            return bool(signed_in), list(_query(ApiKey.id == token.key_id))

        signed_in, rows = self.look_up(read)
        if not signed_in:
            return CachedRefusal(Unauthenticated, PAGE_ENDED)
        caller = _judge(rows, version)
        if isinstance(caller, CachedRefusal):
            return caller
        if caller.expires_at_us is not None and now >= caller.expires_at_us:
            return CachedRefusal(Unauthenticated, EXPIRED, None, _whose(caller))
        ends = (token.expires_at_us, caller.expires_at_us or token.expires_at_us, now + SESSION_LOOK_US)
        return dataclasses.replace(caller, expires_at_us=min(ends), session_id=token.session_id)

    def look_up(self, read: Callable[[], T]) -> T:
        """Return the result of `read` for a credential that is not in memory. The number of concurrent look-ups is
        limited. Raises Unavailable."""
        if not self._lookups.acquire(timeout=LOOKUP_WAIT_S):
            raise Unavailable("Too many unknown API keys are being looked up; try again.")
        try:
            return self._database.read(read)
        finally:
            self._lookups.release()


def _is_minor(value: Caller | CachedRefusal) -> bool:
    """Return whether a flood of such values must not evict the callers of API keys: refusals, and signed tokens."""
    return isinstance(value, CachedRefusal) or bool(value.identity_id)


def _explain_unknown(token: str) -> str:
    if token.startswith(OWN_PREFIXES):
        return UNKNOWN
    if token.startswith(tokens_module.SERVICE_ACCOUNT):
        return MANAGING
    return FOREIGN_KEY_MESSAGE


def _query(condition: peewee.Expression) -> peewee.Select:
    """Key, project, organization, member and user of the key that is wanted, once for each pair of an active rule that
    concerns them and a team of theirs with limits."""
    teams = TeamMember.select(TeamMember.team).where(TeamMember.member == ApiKey.member)
    rule = AccessRule
    places = (
        ((rule.scope == "organization") & (rule.scope_id == Organization.id))
        | ((rule.scope == "team") & rule.scope_id.in_(teams))
        | ((rule.scope == "member") & (rule.scope_id == Member.id))
        | ((rule.scope == "key") & (rule.scope_id == ApiKey.id))
    )
    concerning = (rule.organization == Organization.id) & (rule.active == True) & places  # noqa: E712
    return (
        ApiKey.select(*COLUMNS)
        .join(Project)
        .join(Organization)
        .switch(ApiKey)
        .join(Member)
        .join(User)
        .join(AccessRule, peewee.JOIN.LEFT_OUTER, on=concerning)
        .switch(ApiKey)
        .join(Team, peewee.JOIN.LEFT_OUTER, on=(Team.limited == True) & Team.id.in_(teams))  # noqa: E712
        .switch(ApiKey)
        .join(BUDGETS["key"], peewee.JOIN.LEFT_OUTER, on=BUDGETS["key"].scope_id == ApiKey.id)
        .switch(ApiKey)
        .join(BUDGETS["project"], peewee.JOIN.LEFT_OUTER, on=BUDGETS["project"].scope_id == Project.id)
        .where(condition)
        .dicts()
    )


# The budgets of sessions and runs that key and project set.
BUDGETS = {"key": SessionBudget.alias(), "project": SessionBudget.alias()}
COLUMNS = (
    ApiKey.id.alias("key_id"),
    ApiKey.kind.alias("key_kind"),
    ApiKey.tags.alias("key_tags"),
    ApiKey.description.alias("key_name"),
    ApiKey.status.alias("key_status"),
    ApiKey.expires_at.alias("expires_at_us"),
    Organization.id.alias("organization_id"),
    Organization.status.alias("organization_status"),
    Organization.policy.alias("policy"),
    Project.id.alias("project_id"),
    Project.status.alias("project_status"),
    Project.mode.alias("mode"),
    Project.cache_enabled.alias("cache_enabled"),
    Project.cache_ttl_s.alias("cache_ttl_s"),
    Project.retention.alias("retention"),
    Project.retention_days.alias("retention_days"),
    Project.cache_markers.alias("cache_markers"),
    Project.settings.alias("settings"),
    Member.id.alias("member_id"),
    Member.role.alias("role"),
    Member.status.alias("member_status"),
    is_suspended().alias("member_suspended"),
    User.id.alias("user_id"),
    User.status.alias("user_status"),
    AccessRule.id.alias("rule_id"),
    AccessRule.scope.alias("rule_scope"),
    AccessRule.scope_id.alias("rule_scope_id"),
    AccessRule.type.alias("rule_type"),
    AccessRule.value.alias("rule_value"),
    Team.id.alias("team_id"),
    Team.name.alias("team_name"),
    *(budget.session_nusd.alias(f"{name}_session_nusd") for name, budget in BUDGETS.items()),
    *(budget.run_nusd.alias(f"{name}_run_nusd") for name, budget in BUDGETS.items()),
)

DIRECT = (
    *("key_id", "key_kind", "key_name", "organization_id", "project_id", "user_id", "member_id", "role", "mode"),
    *("cache_enabled", "cache_ttl_s", "retention", "retention_days", "cache_markers", "expires_at_us"),
)


def _judge(rows: Sequence[Mapping[str, Any]], version: int) -> Caller | CachedRefusal:
    """Return the caller or refusal for the rows of one token (see `_query`). Expiry is checked at the moment of use."""
    if not rows:
        return CachedRefusal(Unauthenticated, UNKNOWN)
    row = rows[0]
    refused = _refusal_of(row)
    if refused is not None:
        return replace(refused, ids=(row["key_id"], row["project_id"], row["organization_id"], row["member_id"]))
    rules = {line["rule_id"]: _rule(line) for line in rows if line["rule_id"]}
    levels = compile_levels(row["organization_id"], read_policy(json.loads(row["policy"])), list(rules.values()))
    teams = tuple(sorted({(line["team_id"], line["team_name"]) for line in rows if line["team_id"]}))
    known = {name: row[name] for name in DIRECT}
    session_nusd = _lowest(row["key_session_nusd"], row["project_session_nusd"])
    run_nusd = _lowest(row["key_run_nusd"], row["project_run_nusd"])
    return Caller(
        **known,
        settings=json.loads(row["settings"]),
        rules=levels,
        teams=teams,
        version=version,
        session_nusd=session_nusd,
        run_nusd=run_nusd,
        tags=json.loads(row["key_tags"]) if row["key_tags"] else {},
    )


def _lowest(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _refusal_of(row: Mapping[str, Any]) -> CachedRefusal | None:
    """Why the key of a row may not be used, None where it may."""
    if row["key_status"] != "active":
        return CachedRefusal(Unauthenticated, KEY_REFUSALS[row["key_status"]])
    if row["member_status"] != "active" or row["user_status"] != "active":
        return CachedRefusal(Unauthenticated, "The member who owns the API key was deactivated.")
    if row["member_suspended"]:
        return CachedRefusal(Unauthenticated, SUSPENDED)
    if not reach_of(row["role"], "keys:use"):
        text = f"The member who owns the API key has the role {row['role']}, which has no API keys."
        return CachedRefusal(Forbidden, text, "role_without_keys")
    if row["organization_status"] != "active":
        return CachedRefusal(Gone, "The organization of this API key is blocked.", "organization_blocked")
    if row["project_status"] != "active":
        return CachedRefusal(Gone, "The project of this API key is archived.", "project_archived")
    return None


def _whose(caller: Caller) -> tuple[str, str, str, str]:
    return caller.key_id, caller.project_id, caller.organization_id, caller.member_id


def _rule(row: Mapping[str, Any]) -> RuleInfo:
    place = (row["rule_scope"], row["rule_scope_id"])
    return RuleInfo(row["rule_id"], row["organization_id"], *place, row["rule_type"], json.loads(row["rule_value"]))


# Find the caller of an access token: cached in memory under the control lease, read from the store on a miss.

PREFIX = "llmgat_"
TOKEN_CACHE_SIZE = 20_000
UNKNOWN_TOKEN = "The access token is not valid. Refresh it, or connect the application again."
EXPIRED_TOKEN = "The access token has expired. Refresh it."
WRONG_RESOURCE = "The access token is for another resource. Connect the application to this URL again."


@dataclass(slots=True)
class AccessToken:
    """A valid access token. `cached_caller` was derived from the key's caller `base`."""

    grant_id: str
    key_id: str
    scopes: tuple[str, ...]
    audience: str
    expires_at_us: int
    team_id: str = ""
    base: Caller | None = field(default=None, repr=False)
    cached_caller: Caller | None = field(default=None, repr=False)

    def caller_of(self, base: Caller) -> Caller:
        """Return the key's caller `base` with the grant, scopes and expiry of this token."""
        if self.cached_caller is None or self.base is not base:
            expires_at_us = self.expires_at_us
            if base.expires_at_us is not None:
                expires_at_us = min(base.expires_at_us, expires_at_us)
            self.base = base
            self.cached_caller = dataclasses.replace(
                base, grant_id=self.grant_id, scopes=self.scopes, team_id=self.team_id, expires_at_us=expires_at_us
            )
        return self.cached_caller


class TokenCallers:
    """Returns the callers of access tokens. The cache holds digests of tokens, never tokens."""

    def __init__(self, authentication: Authentication, control: Control, secrets: Secrets, clock: Clock) -> None:
        self._authentication = authentication
        self._clock = clock
        self._hash_keys = secrets.hash_keys
        self._memory: VersionedCache[bytes, AccessToken | str] = VersionedCache(
            control, TOKEN_CACHE_SIZE, _is_refusal, REFUSAL_CACHE_SIZE
        )

    def caller(self, token: str, resource: str = "") -> Caller:
        """Return the caller of a token for `resource` ("": any), with its `grant_id` and `scopes`.

        Raises Unauthenticated (invalid_token) for a token that is unknown, revoked, expired or for another resource,
        and the errors of `Authentication.caller` for its key.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        entry = self._memory.get(digest, lambda version: self._read(token))
        if isinstance(entry, str):
            raise _refusal(entry)
        if self._clock.now_us() >= entry.expires_at_us:
            raise _refusal(EXPIRED_TOKEN)
        if resource and entry.audience != resource:
            raise _refusal(WRONG_RESOURCE)
        return entry.caller_of(self._authentication.caller_of_key(entry.key_id))

    def _read(self, token: str) -> AccessToken | str:
        if not tokens_module.well_formed(token):
            return UNKNOWN_TOKEN
        hashes = tokens_module.candidates(token, self._hash_keys)
        row = self._authentication.look_up(partial(_find, hashes))
        if row is None:
            return UNKNOWN_TOKEN
        grant = row.grant
        scopes = tuple(row.scope.split())
        return AccessToken(grant.id, grant.api_key_id, scopes, grant.audience, row.expires_at, grant.team)


def _refusal(message: str) -> Unauthenticated:
    """Return the error; the header makes coding agents start a new sign-in at once instead of after retries."""
    return Unauthenticated(message, code="invalid_token", headers=(("x-should-retry", "false"),))


def _is_refusal(entry: AccessToken | str) -> bool:
    return isinstance(entry, str)


def _find(hashes: list[str]) -> OAuthToken | None:
    """Return the token's row with its grant if the key still has the grant's generation."""
    row: OAuthToken | None = (
        OAuthToken.select(OAuthToken, OAuthGrant)
        .join(OAuthGrant)
        .join(ApiKey)
        .where(
            OAuthToken.token_hash.in_(hashes), OAuthToken.kind == "access", OAuthGrant.generation == ApiKey.generation
        )
        .first()
    )
    return row


def is_access_token(token: str) -> bool:
    """Return whether `token` has the prefix of our access tokens."""
    return token.startswith(PREFIX)


def response_scope(project_id: str, key_id: str, key_kind: str) -> str:
    """Return the scope that may read the responses of a key: its project, or for a customer's key only that key."""
    if key_kind == "user":
        return project_id
    return f"{project_id}/{key_id}"
