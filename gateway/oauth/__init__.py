"""The OAuth 2.1 authorization server: applications get tokens for `/mcp` that stand for one API key of a person.

A **client** is an application, registered (`clients`) or described at an address of its own (`documents`). A **grant**
is what a person allowed one client with one of their keys; its codes and tokens are rows of keyed hashes (`grants`) and
end with it. `server` is what Authlib's protocol rules are asked with, `tokens` finds the caller of a request, `cleanup`
removes what is over.

A grant holds while the key's `generation` is the one that it was made with: rolling, deactivating or deleting the key
raises that number in the same transaction, so all of its tokens end with the control version, wherever they are.

Decided against: signed tokens that are valid by themselves (they could not be ended within a second), and the key
itself as a token (what is revoked for one application would be revoked for all).
"""
