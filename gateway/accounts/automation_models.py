"""The tables of automation: ids that clients choose, and the rules for tokens of identity providers."""

from typing import Literal, cast

import peewee

from gateway.store.database import Base, TimeField

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
    """The organization whose tokens have an issuer and audience; `digest` is the SHA-256 of both."""

    digest = peewee.CharField(64, primary_key=True)
    organization = peewee.CharField(40)

    class Meta:
        table_name = "workload_audience"
