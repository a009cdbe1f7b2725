"""Attributes of members for chargeback, such as the cost center, with the hours in which each value held. Values that
provisioning stored before hold from the beginning."""

import json

NAMES = ("costCenter", "department", "division", "organization", "employeeNumber")
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
LENGTH = 255
STATEMENT = """
CREATE TABLE member_attribute (
    member_id VARCHAR(40) NOT NULL REFERENCES member (id) ON DELETE CASCADE,
    name VARCHAR(40) NOT NULL,
    since BIGINT NOT NULL,
    until BIGINT,
    value VARCHAR(255) NOT NULL,
    PRIMARY KEY (member_id, name, since)
)
"""


def up(migrator, db):
    db.execute_sql(STATEMENT)
    mark = db.param
    insert = f"INSERT INTO member_attribute (member_id, name, since, value) VALUES ({mark}, {mark}, 0, {mark})"
    for member, text in db.execute_sql("SELECT member_id, attributes FROM scim_user").fetchall():
        stated = json.loads(text).get(ENTERPRISE) or {}
        for name in NAMES:
            value = " ".join(str(stated.get(name) or "").split())[:LENGTH]
            if value:
                db.execute_sql(insert, (member, name, value))
