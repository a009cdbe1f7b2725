"""The accounts: organizations, projects, people, keys, rules, provider keys and the audit trail."""

import peewee


class Base(peewee.Model):
    class Meta:
        legacy_table_names = False


class Organization(Base):
    id = peewee.CharField(40, primary_key=True)
    name = peewee.CharField(255)
    status = peewee.CharField(16)
    policy = peewee.TextField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()


class Project(Base):
    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    name = peewee.CharField(255)
    mode = peewee.CharField(16)
    status = peewee.CharField(16)
    cache_enabled = peewee.BooleanField()
    cache_ttl_s = peewee.IntegerField()
    retention = peewee.CharField(16)
    retention_days = peewee.IntegerField()
    cache_markers = peewee.CharField(16)
    settings = peewee.TextField()
    callback_secret = peewee.TextField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()


class User(Base):
    id = peewee.CharField(40, primary_key=True)
    email = peewee.CharField(255, unique=True)
    name = peewee.CharField(255)
    password_hash = peewee.CharField(255)
    status = peewee.CharField(16)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()


class Member(Base):
    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    user = peewee.ForeignKeyField(User, on_delete="RESTRICT", backref="+")
    role = peewee.CharField(16)
    status = peewee.CharField(16)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        indexes = ((("organization", "user"), True),)


class Team(Base):
    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    name = peewee.CharField(255)
    created_at = peewee.BigIntegerField()

    class Meta:
        indexes = ((("organization", "name"), True),)


class TeamMember(Base):
    team = peewee.ForeignKeyField(Team, on_delete="CASCADE", backref="+")
    member = peewee.ForeignKeyField(Member, on_delete="CASCADE", backref="+")

    class Meta:
        primary_key = peewee.CompositeKey("team", "member")


class ApiKey(Base):
    id = peewee.CharField(40, primary_key=True)
    project = peewee.ForeignKeyField(Project, on_delete="RESTRICT", backref="+")
    member = peewee.ForeignKeyField(Member, on_delete="RESTRICT", backref="+")
    kind = peewee.CharField(16)
    description = peewee.CharField(255)
    token_hash = peewee.CharField(64, unique=True)
    mask = peewee.CharField(32)
    status = peewee.CharField(16)
    expires_at = peewee.BigIntegerField(null=True)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()


class ProviderKey(Base):
    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    provider = peewee.CharField(80)
    secret = peewee.TextField()
    mask = peewee.CharField(32)
    label = peewee.CharField(255)
    base_url = peewee.TextField()
    region = peewee.CharField(40)
    allowed_models = peewee.TextField()
    max_spend_nusd = peewee.BigIntegerField(null=True)
    status = peewee.CharField(16)
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        indexes = ((("organization", "provider"), False),)


class CustomProvider(Base):
    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    name = peewee.CharField(64)
    base_url = peewee.TextField()
    models = peewee.TextField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        indexes = ((("organization", "name"), True),)


class AccessRule(Base):
    id = peewee.CharField(40, primary_key=True)
    organization = peewee.ForeignKeyField(Organization, on_delete="RESTRICT", backref="+")
    scope = peewee.CharField(16)
    scope_id = peewee.CharField(40)
    type = peewee.CharField(24)
    value = peewee.TextField()
    active = peewee.BooleanField()
    created_at = peewee.BigIntegerField()
    updated_at = peewee.BigIntegerField()

    class Meta:
        indexes = ((("scope", "scope_id"), False),)


class AuditHead(Base):
    id = peewee.IntegerField(primary_key=True)
    seq = peewee.BigIntegerField()
    hash = peewee.CharField(64)


class Audit(Base):
    seq = peewee.BigIntegerField(primary_key=True)
    at = peewee.BigIntegerField()
    organization = peewee.CharField(40, index=True)
    actor = peewee.CharField(80)
    action = peewee.CharField(64)
    subject = peewee.CharField(80)
    detail = peewee.TextField()
    previous_hash = peewee.CharField(64)
    hash = peewee.CharField(64)


MODELS = (
    *(Organization, Project, User, Member, Team, TeamMember),
    *(ApiKey, ProviderKey, CustomProvider, AccessRule, AuditHead, Audit),
)


def up(migrator, db):
    with db.bind_ctx(MODELS, bind_refs=False, bind_backrefs=False):
        db.create_tables(MODELS, safe=True)
        AuditHead.insert(id=1, seq=0, hash="0" * 64).on_conflict_ignore().execute()
