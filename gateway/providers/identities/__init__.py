"""Workload identities: short-lived credentials of the host at a cloud provider, instead of stored keys.

A module of each vendor implements a `TokenSource`; `upstream_identity` caches and renews the tokens.
"""
