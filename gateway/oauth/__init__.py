"""The OAuth 2.1 authorization server: applications get tokens for `/mcp` that stand for one API key of a person.

A **client** is an application: either registered (`clients`) or described by a document at its own URL
(`client_documents`). A **grant** is a person's permission for one client to use one of their keys. Its codes and tokens
are stored as keyed hashes (`grants`) and are deleted with it. `token_endpoint` connects Authlib's protocol rules to the
store, `gateway/callers/authentication.py` finds the caller of a request, and `authorization_server` deletes expired
rows.

A grant is valid while the key has the `generation` that it had at consent. Rolling, deactivating or deleting the key
raises the generation in the same transaction, and the control version tells every worker within a second.

Rejected alternatives: signed tokens that are valid without a look-up (they could not be revoked within a second), and
the key as the token (revoking it for one application would revoke it for all).
"""
