"""Tables of the authorization server. Secrets are stored only as keyed hashes."""

from typing import Literal, cast

import peewee

from gateway.callers.models import ApiKey
from gateway.store.database import Base, TimeField

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
