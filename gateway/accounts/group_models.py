"""The tables of group rules: the rules, the known groups of members, and what the rules gave each member."""

import peewee

from gateway.store.database import Base, TimeField


class GroupRuleRow(Base):
    """The grants for members of the group `name`. `role` "" gives none, `teams` is a JSON list of ids, `parts` one of
    teams and projects in which they have a role, `limits` a JSON object of spending limits ({}: none), `set_by` the
    actor of the last change. `source` is the only one whose groups count, "" for all. `by_owner`: an owner wrote it, so
    that it concerns owners too."""

    id = peewee.CharField(40, primary_key=True)
    organization = peewee.CharField(40)
    name = peewee.CharField(255)
    role = peewee.CharField(16, default="")
    teams = peewee.TextField(default="[]")
    parts = peewee.TextField(default="[]")
    limits = peewee.TextField(default="{}")
    priority = peewee.IntegerField(default=100)
    source = peewee.CharField(80, default="")
    by_owner = peewee.BooleanField(default=False)
    set_by = peewee.CharField(80)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "group_rule"


class MemberGroup(Base):
    """A group that `source` (an identity provider, or provisioning) stated for a member. `trusted`: an owner stands
    behind the statement, so that it may make the member an owner."""

    member = peewee.CharField(40)
    source = peewee.CharField(80)
    name = peewee.CharField(255)
    organization = peewee.CharField(40)
    trusted = peewee.BooleanField(default=False)

    class Meta:
        table_name = "member_group"
        primary_key = peewee.CompositeKey("member", "source", "name")


class GroupGrant(Base):
    """Grants of the rules to a member, so that they can be taken back. `stale`: a rule of one of the member's groups
    has changed since."""

    member = peewee.CharField(40, primary_key=True)
    role = peewee.CharField(16, default="")
    teams = peewee.TextField(default="[]")
    parts = peewee.TextField(default="[]")
    limits = peewee.TextField(default="{}")
    stale = peewee.BooleanField(default=False, index=True)

    class Meta:
        table_name = "group_grant"
