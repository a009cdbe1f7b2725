"""Accounts and permissions: organizations, projects, members, keys, rules, provider keys, discounts and the audit log.

May not know limits, metering, surfaces or any framework: spending limits are rows of `limits`, replies are written by
the surfaces. Rows never leave the package; functions return frozen values. A change goes through `changes.commit`,
which raises the control version first, so that every worker forgets what it remembered.

Decided against: re-hashing a token under the newest hash key when it is used (a write in the path of every request;
an old key stays listed until its tokens are rolled), a column for the last use of a key (the usage records tell it),
hard deletes (history of usage and audit names the rows) and soft state in redis (identity never depends on it).
"""
