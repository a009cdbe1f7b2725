"""The tables of single sign-on: identity providers of organizations, their domains, linked identities and sign-ins."""

import peewee

from gateway.store.database import Base, TimeField


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
