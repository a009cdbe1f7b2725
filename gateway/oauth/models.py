"""The tables of the authorization server; secrets are kept as keyed hashes only."""

from collections.abc import Sequence
from typing import Literal, cast

import peewee

from gateway.accounts.models import ApiKey
from gateway.store.database import Base, TimeField

TokenKind = Literal["access", "refresh"]


class OAuthClient(Base):
    """A registered application. `secret_hash` is "" for one that cannot keep a secret, `metadata` what it said of
    itself (JSON), `key_id` the API key that it stands for by itself, "" for none. `used_at` 0: nobody allowed it
    anything yet."""

    id = peewee.CharField(40, primary_key=True)
    name = peewee.CharField(120)
    secret_hash = peewee.CharField(64, default="")
    metadata = peewee.TextField()
    key_id = peewee.CharField(40, default="")
    created_at = TimeField()
    used_at = TimeField(default=0)

    class Meta:
        table_name = "oauth_client"


class OAuthGrant(Base):
    """What a person allowed a client: `api_key` with its `generation` of then, `scope` (words with spaces) at
    `audience`. `client` is the id of a registered client, the address of its document, or "" for the key's holder
    itself."""

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
    created_at = TimeField()
    used_at = TimeField()
    expires_at = TimeField()

    class Meta:
        table_name = "oauth_grant"


class OAuthCode(Base):
    """An authorization code; `challenge` is that of S256 (RFC 7636). `used_at` 0: not yet, and it is used once."""

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
    """A token; one for refreshing is kept after its use, so that a second use shows that it was stolen."""

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


MODELS: Sequence[type[Base]] = (OAuthClient, OAuthGrant, OAuthCode, OAuthToken)
