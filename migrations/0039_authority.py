"""The authority behind accounts, addresses, identity providers and groups: whether an owner stands behind them.

Groups and providers that exist already count as an owner's if the newest entry about them in the audit log was made by
a person who is an owner, or by the operator, and provisioned groups if every SCIM token of the organization does.
"""

import json

STATEMENTS = """
ALTER TABLE "user" ADD COLUMN made_by VARCHAR(40) NOT NULL DEFAULT '';
ALTER TABLE "user" ADD COLUMN email_set_by VARCHAR(80) NOT NULL DEFAULT '';
ALTER TABLE scim_group ADD COLUMN by_owner BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE scim_group_member ADD COLUMN by_owner BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE member_group ADD COLUMN trusted BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE group_rule ADD COLUMN source VARCHAR(80) NOT NULL DEFAULT '';
ALTER TABLE group_rule ADD COLUMN by_owner BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE group_rule SET by_owner = TRUE WHERE role = 'owner' OR NOT EXISTS (
    SELECT 1 FROM member WHERE member.organization_id = group_rule.organization AND member.user_id = group_rule.set_by
    AND member.status = 'active' AND member.role <> 'owner');
UPDATE "user" SET made_by = COALESCE((
    SELECT MIN(scim_user.organization) FROM scim_user JOIN member ON member.id = scim_user.member_id
    WHERE member.user_id = "user".id AND scim_user.made_account = TRUE), '')
    WHERE id IN (
        SELECT member.user_id FROM member JOIN scim_user ON member.id = scim_user.member_id
        WHERE scim_user.made_account = TRUE);
UPDATE scim_group SET by_owner = TRUE WHERE organization NOT IN (
    SELECT organization FROM scim_token WHERE by_owner = FALSE);
UPDATE scim_group_member SET by_owner = TRUE WHERE group_id IN (
    SELECT id FROM scim_group WHERE by_owner = TRUE);
UPDATE member_group SET trusted = TRUE WHERE source = 'scim' AND organization NOT IN (
    SELECT organization FROM scim_token WHERE by_owner = FALSE);
UPDATE member_group SET trusted = TRUE WHERE SUBSTR(source, 1, 4) NOT IN ('idp_', 'scim')
"""
AUTHORS = (
    "SELECT actor FROM audit WHERE subject = ? AND action IN ('identity_provider.create', 'identity_provider.update') "
    "ORDER BY seq DESC LIMIT 1"
)
OWNERS = "SELECT 1 FROM member WHERE organization_id = ? AND user_id = ? AND role = 'owner' AND status = 'active'"


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        db.execute_sql(statement)
    mark = db.param
    authors, owners = (sql.replace("?", mark) for sql in (AUTHORS, OWNERS))
    for provider_id, organization_id, text in db.execute_sql(
        "SELECT id, organization, settings FROM identity_provider"
    ).fetchall():
        author = db.execute_sql(authors, (provider_id,)).fetchone()
        by_owner = author is None or author[0] == "operator"
        if not by_owner:
            by_owner = db.execute_sql(owners, (organization_id, author[0])).fetchone() is not None
        settings = json.dumps({**json.loads(text), "for_owners": by_owner}, sort_keys=True)
        db.execute_sql(f"UPDATE identity_provider SET settings = {mark} WHERE id = {mark}", (settings, provider_id))
        if by_owner:
            db.execute_sql(f"UPDATE member_group SET trusted = TRUE WHERE source = {mark}", (provider_id,))
