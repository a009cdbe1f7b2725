"""The tables of the accounts (organizations, people, keys, rules, the audit trail) and of the authorization server.
Migrations create their indexes."""

from typing import Any, Literal, cast

import peewee

from gateway.callers.credential_sources import CREDITS
from gateway.callers.permissions import Role
from gateway.callers.tokens import Kind
from gateway.store.database import Base, NanoField, TimeField

Scope = Literal["organization", "team", "member", "key", "service_account"]
OrganizationStatus = Literal["active", "blocked"]
MemberStatus = Literal["active", "inactive"]
UserKind = Literal["person", "service", "erased"]
DeviceStatus = Literal["pending", "approved", "denied", "expired", "slow_down"]


class Organization(Base):
    """`policy` is the compliance policy as JSON text, "{}" when there is none. `max_keys` and `max_member_keys` cap the
    active keys of all and of each member: null = as the installation does, 0 = no cap. With `sso_required`, sessions
    need its single sign-on; `break_glass` is the id of the one member who may still use a password.
    `leads_add_members`: leads add members of the organization to their teams. `compare_people`: outcomes are shown by
    person; `hold_unusual`: keys are held at their usual amount on unusual days."""

    id = peewee.CharField(40, primary_key=True)
    name = peewee.CharField(255)
    status = cast("peewee.CharField[OrganizationStatus]", peewee.CharField(16, default="active"))
    policy = peewee.TextField(default="{}")
    max_keys = peewee.IntegerField(null=True)
    max_member_keys = peewee.IntegerField(null=True)
    sso_required = peewee.BooleanField(default=False)
    break_glass = peewee.CharField(40, default="")
    leads_add_members = peewee.BooleanField(default=False)
    compare_people = peewee.BooleanField(default=False)
    hold_unusual = peewee.BooleanField(default=False)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "organization"


class Project(Base):
    """A project. `callback_secret` is encrypted; `settings` is JSON text for the settings that have no column."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    name = peewee.CharField(255)
    mode = peewee.CharField(16, default=CREDITS)
    status = peewee.CharField(16, default="active")
    cache_enabled = peewee.BooleanField(default=False)
    cache_ttl_s = peewee.IntegerField(default=60)
    retention = peewee.CharField(16, default="none")
    retention_days = peewee.IntegerField(default=30)
    cache_markers = peewee.CharField(16, default="automatic")
    settings = peewee.TextField(default="{}")
    callback_secret = peewee.TextField(default="")
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "project"


class User(Base):
    """`email` is kept in lower case; `password_hash` is "" for who cannot sign in by password. A user of the kind
    service is a service account: it owns the keys that it creates, and never signs in. One of the kind erased stands
    for a person whose data were deleted. `made_by` is the organization whose provisioning made the account,
    `email_set_by` who changed the address until its person confirms it; "": nobody else."""

    id = peewee.CharField(40, primary_key=True)
    email = peewee.CharField(255, unique=True)
    name = peewee.CharField(255, default="")
    password_hash = peewee.CharField(255, default="")
    status = cast("peewee.CharField[MemberStatus]", peewee.CharField(16, default="active"))
    kind = cast("peewee.CharField[UserKind]", peewee.CharField(16, default="person"))
    made_by = peewee.CharField(40, default="")
    email_set_by = peewee.CharField(80, default="")
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "user"


class Member(Base):
    """A user in an organization. `suspended_at`: since when the identity provider that the organization requires
    refuses the person, null = it does not."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    user = peewee.ForeignKeyField(User, on_delete="RESTRICT", backref="+")
    user_id: str
    role = cast("peewee.CharField[Role]", peewee.CharField(16, default="developer"))
    status = cast("peewee.CharField[MemberStatus]", peewee.CharField(16, default="active"))
    suspended_at = TimeField(null=True)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "member"


def is_suspended() -> Any:
    """Return the condition that a row's member is suspended. The query joins Member and Organization."""
    is_required = (Organization.sso_required == True) & (Organization.break_glass != Member.id)  # noqa: E712
    return Member.suspended_at.is_null(False) & is_required


class Team(Base):
    """`limited`: its budgets have limits, so that callers in it reserve from them too."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    name = peewee.CharField(255)
    limited = peewee.BooleanField(default=False)
    created_at = TimeField()

    class Meta:
        table_name = "team"


class TeamMember(Base):
    team = peewee.ForeignKeyField(Team, on_delete="CASCADE", backref="+")
    team_id: str
    member = peewee.ForeignKeyField(Member, on_delete="CASCADE", backref="+")
    member_id: str

    class Meta:
        table_name = "team_member"
        primary_key = peewee.CompositeKey("team", "member")


class ScopedRole(Base):
    """A role in a part of an organization: the member leads the team, or is an admin of the project."""

    scope_id = peewee.CharField(40)
    member = peewee.ForeignKeyField(Member, on_delete="CASCADE", backref="+")
    member_id: str
    created_at = TimeField()

    class Meta:
        table_name = "scoped_role"
        primary_key = peewee.CompositeKey("scope_id", "member")


class ApiKey(Base):
    """`member` made and owns the key. "expired" is never stored: it follows from `expires_at`, µs or null. `generation`
    counts how often everything ended that was bound to the key, such as access tokens. `tags` is a JSON object: the
    metadata of all requests with the key; "" for none."""

    id = peewee.CharField(40, primary_key=True)
    project = peewee.ForeignKeyField(Project, on_delete="RESTRICT", backref="+")
    project_id: str
    member = peewee.ForeignKeyField(Member, on_delete="RESTRICT", backref="+")
    member_id: str
    kind = cast("peewee.CharField[Kind]", peewee.CharField(16, default="user"))
    description = peewee.CharField(255)
    token_hash = peewee.CharField(64, unique=True)
    mask = peewee.CharField(32)
    status = peewee.CharField(16, default="active")
    generation = peewee.BigIntegerField(default=0)
    expires_at = TimeField(null=True)
    created_at = TimeField()
    updated_at = TimeField()
    tags = peewee.TextField(default="")

    class Meta:
        table_name = "api_key"


class SessionBudget(Base):
    """The budgets of each session and each run of a key or project; `scope_id` is its id."""

    scope_id = peewee.CharField(40, primary_key=True)
    session_nusd = NanoField(null=True)
    run_nusd = NanoField(null=True)

    class Meta:
        table_name = "session_budget"


class ProviderKey(Base):
    """An organization's own credential at a provider; `secret` is encrypted, `allowed_models` a JSON list."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    provider = peewee.CharField(80)
    secret = peewee.TextField()
    mask = peewee.CharField(32)
    label = peewee.CharField(255, default="")
    base_url = peewee.TextField(default="")
    region = peewee.CharField(40, default="")
    allowed_models = peewee.TextField(default="[]")
    max_spend_nusd = NanoField(null=True)
    status = peewee.CharField(16, default="active")
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "provider_key"


class CustomProvider(Base):
    """A provider that only one organization knows; `models` is a JSON list of objects with an `id`."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    name = peewee.CharField(64)
    base_url = peewee.TextField()
    models = peewee.TextField(default="[]")
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "custom_provider"


class AccessRule(Base):
    """One rule at one place: `scope` organization, team, member, key or service account, `scope_id` the id there."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    scope = cast("peewee.CharField[Scope]", peewee.CharField(16))
    scope_id = peewee.CharField(40)
    type = peewee.CharField(24)
    value = peewee.TextField()
    active = peewee.BooleanField(default=True)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "access_rule"


class GuardrailRow(Base):
    """A rule of guardrails at one place: `scope` organization, project or key, `scope_id` the id there; `content` is
    the JSON of its other members."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    scope = peewee.CharField(16)
    scope_id = peewee.CharField(40)
    name = peewee.CharField(80)
    action = peewee.CharField(16)
    content = peewee.TextField()
    probation = peewee.BooleanField(default=False)
    active = peewee.BooleanField(default=True)
    checker_secret = peewee.TextField(default="")  # encrypted
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "guardrail_rule"


class GuardrailFinding(Base):
    """How often a rule found values of one kind in one place of a request; never a value."""

    request_id = peewee.CharField(32)
    rule = peewee.CharField(40)
    kind = peewee.CharField(40)
    place = peewee.CharField(16)
    organization = peewee.CharField(40)
    project = peewee.CharField(40)
    api_key = peewee.CharField(40)
    action = peewee.CharField(16)
    count = peewee.BigIntegerField()
    at = TimeField()

    class Meta:
        table_name = "guardrail_finding"
        primary_key = peewee.CompositeKey("request_id", "rule", "kind", "place")


class Discount(Base):
    """A fraction of the list price, in parts per million, that an organization's credits are spared; each of
    `organization`, `provider` and `model` may be "*". Null times: always."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    provider = peewee.CharField(80)
    model = peewee.CharField(255)
    fraction_ppm = peewee.IntegerField()
    starts_at = TimeField(null=True)
    ends_at = TimeField(null=True)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "discount"


class ServiceAccount(Base):
    """A credential of an organization for the management API. `id` is also that of its user, `scopes` are separated by
    spaces, `created_by` is a user id or "operator", `last_used_at` is 0 before the first use."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    member = peewee.ForeignKeyField(Member, on_delete="RESTRICT", backref="+")
    member_id: str
    name = peewee.CharField(255)
    scopes = peewee.TextField()
    token_hash = peewee.CharField(64, unique=True)
    mask = peewee.CharField(32)
    status = cast("peewee.CharField[MemberStatus]", peewee.CharField(16, default="active"))
    expires_at = TimeField(null=True)
    created_by = peewee.CharField(40)
    created_at = TimeField()
    updated_at = TimeField()
    last_used_at = TimeField(default=0)

    class Meta:
        table_name = "service_account"


class AuditHead(Base):
    """The one row (id 1) that appends lock; it names the newest entry, so a cut-off tail shows."""

    id = peewee.IntegerField(primary_key=True)
    seq = peewee.BigIntegerField()
    hash = peewee.CharField(64)

    class Meta:
        table_name = "audit_head"


class Audit(Base):
    """One change; `organization` is "" for changes above any, `detail` JSON text without secrets. `redacted_by`: the
    entry that vouches for what stands here since a person was erased."""

    seq = peewee.BigIntegerField(primary_key=True)
    at = TimeField()
    organization = peewee.CharField(40, default="", index=True)
    actor = peewee.CharField(80)
    action = peewee.CharField(64)
    subject = peewee.CharField(80)
    detail = peewee.TextField(default="{}")
    previous_hash = peewee.CharField(64)
    hash = peewee.CharField(64)
    redacted_by = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "audit"


class Session(Base):
    """A browser's or command line's sign-in; only the keyed hash of its token is kept. `sso_login` is the sign-in with
    an identity provider on which it depends, null after a sign-in by password."""

    id = peewee.CharField(40, primary_key=True)
    user = peewee.ForeignKeyField(User, on_delete="CASCADE", backref="+")
    user_id: str
    token_hash = peewee.CharField(64, unique=True)
    created_at = TimeField()
    refreshed_at = TimeField()
    expires_at = TimeField()
    agent = peewee.CharField(120, default="")
    sso_login = peewee.CharField(40, null=True)

    class Meta:
        table_name = "session"


class DeviceCode(Base):
    """A sign-in that waits for its approval. `grant_id` is the grant of an approved client ("": it gets a session),
    `network` the keyed hash of the client's network."""

    id = peewee.CharField(40, primary_key=True)
    code_hash = peewee.CharField(64, unique=True)
    user_code = peewee.CharField(16, unique=True)
    client = peewee.CharField(64)
    network = peewee.CharField(64, default="")
    status = cast("peewee.CharField[DeviceStatus]", peewee.CharField(16, default="pending"))
    user = peewee.ForeignKeyField(User, on_delete="CASCADE", backref="+", null=True)
    user_id: str | None
    sso_login = peewee.CharField(40, null=True)
    grant_id = peewee.CharField(40, column_name="oauth_grant", default="")
    polled_at = TimeField(default=0)
    created_at = TimeField()
    expires_at = TimeField()

    class Meta:
        table_name = "device_code"


class Invitation(Base):
    """`status` pending, accepted or revoked; `invited_by` a user id or "operator". `team_id` ("" for none), roles
    in `parts` (a JSON list of teams and projects) and `limits` (as `group_grants.store_limits` writes them) are given
    to the person who accepts."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    email = peewee.CharField(255)
    role = cast("peewee.CharField[Role]", peewee.CharField(16))
    token_hash = peewee.CharField(64, unique=True)
    invited_by = peewee.CharField(40)
    status = peewee.CharField(16, default="pending")
    created_at = TimeField()
    expires_at = TimeField()
    team_id = peewee.CharField(40, default="")
    parts = peewee.TextField(default="[]")
    limits = peewee.TextField(default="{}")

    class Meta:
        table_name = "invitation"


class Skill(Base):
    """An organization's published skill; `files` is a JSON list of {path, content, encoding}."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    organization_id: str
    name = peewee.CharField(64)
    description = peewee.TextField()
    content = peewee.TextField()
    files = peewee.TextField(default="[]")
    enabled = peewee.BooleanField(default=True)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "skill"


# Tables of the authorization server. Secrets are stored only as keyed hashes.

TokenKind = Literal["access", "refresh"]


class OAuthClient(Base):
    """A registered application.

    `secret_hash` is "" for a public client, `metadata` its registration as JSON, `key_id` the API key that it may use
    with client credentials ("": none). `network` is the keyed hash of the network that registered it, and `used_at` 0
    until a person authorizes it.
    """

    id = peewee.CharField(40, primary_key=True)
    name = peewee.CharField(120)
    secret_hash = peewee.CharField(64, default="")
    metadata = peewee.TextField()
    key_id = peewee.CharField(40, default="")
    network = peewee.CharField(64, default="")
    created_at = TimeField()
    used_at = TimeField(default=0)

    class Meta:
        table_name = "oauth_client"


class OAuthGrant(Base):
    """A person's permission for a client to use an API key.

    `generation` is that of the key at consent, `scope` the scopes separated by spaces, `audience` the resource.
    `client` is the id of a registered client, the URL of a metadata document, or "" for a request that has the API key
    as its secret. `team` is the team that the person chose at a device sign-in ("": none).
    """

    id = peewee.CharField(40, primary_key=True)
    api_key = peewee.ForeignKeyField(ApiKey, column_name="api_key", on_delete="CASCADE", backref="+")
    api_key_id: str
    generation = peewee.BigIntegerField()
    user_id = peewee.CharField(40)
    client = peewee.CharField(512)
    client_name = peewee.CharField(120)
    redirect_host = peewee.CharField(255)
    scope = peewee.CharField(255)
    audience = peewee.CharField(512)
    team = peewee.CharField(40, default="")
    created_at = TimeField()
    used_at = TimeField()
    expires_at = TimeField()

    class Meta:
        table_name = "oauth_grant"


class OAuthCode(Base):
    """An authorization code with its S256 `challenge` (RFC 7636). It works once; `used_at` is 0 before."""

    id = peewee.CharField(40, primary_key=True)
    code_hash = peewee.CharField(64, unique=True)
    grant = peewee.ForeignKeyField(
        OAuthGrant, column_name="oauth_grant", object_id_name="grant_id", on_delete="CASCADE", backref="+"
    )
    grant_id: str
    redirect_uri = peewee.TextField()
    challenge = peewee.CharField(128)
    expires_at = TimeField()
    used_at = TimeField(default=0)

    class Meta:
        table_name = "oauth_code"


class OAuthToken(Base):
    """An access or refresh token. A used refresh token stays, so that a second use reveals that it was stolen."""

    id = peewee.CharField(40, primary_key=True)
    token_hash = peewee.CharField(64, unique=True)
    kind = cast("peewee.CharField[TokenKind]", peewee.CharField(16))
    grant = peewee.ForeignKeyField(
        OAuthGrant, column_name="oauth_grant", object_id_name="grant_id", on_delete="CASCADE", backref="+"
    )
    grant_id: str
    scope = peewee.CharField(255)
    expires_at = TimeField()
    used_at = TimeField(default=0)

    class Meta:
        table_name = "oauth_token"
