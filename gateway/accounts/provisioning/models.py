"""Tables of provisioning."""

import peewee

from gateway.store.database import Base, TimeField


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
