"""The tables of single sign-on, of provisioning, and of automation."""

from typing import Literal, cast

import peewee

from gateway.store.database import Base, TimeField

# Single sign-on: identity providers of organizations, their domains, linked identities and sign-ins.


class IdentityProviderRow(Base):
    """An organization's OpenID provider; `client_secret` is encrypted, `settings` a JSON object."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    name = peewee.CharField(80)
    issuer = peewee.CharField(512)
    client_id = peewee.CharField(255)
    client_secret = peewee.TextField(default="")
    settings = peewee.TextField(default="{}")
    active = peewee.BooleanField(default=True)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "identity_provider"


class IdentityDomain(Base):
    """A domain of e-mail addresses that an organization claims for a provider; it counts once it is verified."""

    provider = peewee.CharField(40)
    domain = peewee.CharField(255)
    organization = peewee.CharField(40)
    token = peewee.CharField(80)
    verified_at = TimeField(null=True)
    created_at = TimeField()

    class Meta:
        table_name = "identity_domain"
        primary_key = peewee.CompositeKey("provider", "domain")


class UserIdentity(Base):
    """A person's account at an issuer. `organization` is that of the provider, "" for providers of the installation:
    the same account at the same issuer counts separately for each."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    issuer = peewee.CharField(512)
    subject = peewee.CharField(255)
    user_id = peewee.CharField(40)
    provider = peewee.CharField(80)
    email = peewee.CharField(255, default="")
    created_at = TimeField()
    used_at = TimeField()

    class Meta:
        table_name = "user_identity"


class SsoLogin(Base):
    """A sign-in with an identity provider, which sessions of browsers and devices share.

    `refresh_token` is encrypted, "" if there is none. The provider is asked at `check_at` (0: never) whether the person
    may still sign in; the sessions count until `valid_until`.
    """

    id = peewee.CharField(40, primary_key=True)
    user_id = peewee.CharField(40)
    organization = peewee.CharField(40)
    provider = peewee.CharField(80)
    issuer = peewee.CharField(512)
    subject = peewee.CharField(255)
    sid = peewee.CharField(255, default="")
    refresh_token = peewee.TextField(default="")
    id_token_hint = peewee.TextField(default="")
    failures = peewee.IntegerField(default=0)
    created_at = TimeField()
    checked_at = TimeField()
    check_at = TimeField()
    valid_until = TimeField()

    class Meta:
        table_name = "sso_login"


def has_own_provider(organization_id: str) -> bool:
    """Return whether an active identity provider belongs to the organization. Call it within a read or write."""
    own = IdentityProviderRow.organization == organization_id
    return IdentityProviderRow.select().where(own, IdentityProviderRow.active == True).exists()  # noqa: E712


# Tables of provisioning.


class ScimToken(Base):
    """A token of an organization; only its keyed hash is stored. `by_owner`: an owner created it, so that it may change
    owners. `used_at` is 0 before the first use, and later accurate to the hour."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    name = peewee.CharField(255)
    token_hash = peewee.CharField(64, unique=True)
    mask = peewee.CharField(32)
    by_owner = peewee.BooleanField(default=False)
    created_by = peewee.CharField(40)
    created_at = TimeField()
    expires_at = TimeField()
    used_at = TimeField(default=0)

    class Meta:
        table_name = "scim_token"


class ScimUser(Base):
    """The values that an identity provider keeps for a member. `user_name_key` is the name in lower case, unique in the
    organization; `email` is the address in lower case; `attributes` is JSON text. `made_account`: provisioning created
    the account of the person."""

    member = peewee.CharField(40, primary_key=True, column_name="member_id")
    organization = peewee.CharField(40)
    user_name = peewee.CharField(255)
    user_name_key = peewee.CharField(255)
    external_id = peewee.CharField(255, default="")
    email = peewee.CharField(255)
    attributes = peewee.TextField(default="{}")
    made_account = peewee.BooleanField(default=False)
    version = peewee.BigIntegerField(default=1)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "scim_user"


class ScimGroup(Base):
    """A group of an identity provider. `name_key` is its name in lower case, unique in the organization.
    `by_owner`: the token that named it is an owner's, so that the group may make owners."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    display_name = peewee.CharField(255)
    name_key = peewee.CharField(255)
    external_id = peewee.CharField(255, default="")
    by_owner = peewee.BooleanField(default=False)
    version = peewee.BigIntegerField(default=1)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "scim_group"


class ScimGroupMember(Base):
    """`by_owner`: the token that stated the member is an owner's."""

    group = peewee.ForeignKeyField(ScimGroup, column_name="group_id", on_delete="CASCADE", backref="+")
    group_id: str
    member = peewee.CharField(40, column_name="member_id")
    by_owner = peewee.BooleanField(default=False)

    class Meta:
        table_name = "scim_group_member"
        primary_key = peewee.CompositeKey("group", "member")


# The tables of automation: ids that clients choose, and the rules for tokens of identity providers.

IdentityStatus = Literal["active", "inactive"]


class ClientId(Base):
    """An id that a client chose for an object of an organization. `digest` is the keyed hash of the creating
    request."""

    organization = peewee.CharField(40)
    kind = peewee.CharField(40)
    client_id = peewee.CharField(80)
    object_id = peewee.CharField(80)
    digest = peewee.CharField(64)
    created_at = TimeField()

    class Meta:
        table_name = "client_id"
        primary_key = peewee.CompositeKey("organization", "kind", "client_id")


class WorkloadIdentity(Base):
    """A rule by which tokens of an issuer call models. `id` is also that of the user who owns its key, `api_key_id`.

    `jwks_url` and `jwks` are "" where the keys are found by discovery. `claims` is a JSON object of claim → list of
    accepted values, `attribution` a JSON object of metadata name → claim.
    """

    id = peewee.CharField(40, primary_key=True)
    organization_id = peewee.CharField(40)
    member_id = peewee.CharField(40)
    api_key_id = peewee.CharField(40)
    name = peewee.CharField(255)
    issuer = peewee.CharField(255)
    audience = peewee.CharField(255)
    jwks_url = peewee.TextField(default="")
    jwks = peewee.TextField(default="")
    claims = peewee.TextField()
    attribution = peewee.TextField(default="{}")
    status = cast("peewee.CharField[IdentityStatus]", peewee.CharField(16, default="active"))
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "workload_identity"


class WorkloadAudience(Base):
    """The organization of the tokens with an issuer and audience; `digest` is the SHA-256 of both."""

    digest = peewee.CharField(64, primary_key=True)
    organization = peewee.CharField(40)

    class Meta:
        table_name = "workload_audience"
