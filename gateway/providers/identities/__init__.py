"""Workload identities: short-lived credentials of the host at a cloud provider, instead of stored keys.

A vendor's folder implements a `TokenSource`; this package caches and renews the tokens.
"""
