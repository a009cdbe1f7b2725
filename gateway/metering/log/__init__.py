"""The request log: every request, assembled from rows that are written anyway.

Usage rows contain nearly everything; a log entry is written in addition for requests that were rejected or failed, and
for requests with custom metadata. This package must not know how requests are admitted or answered.
Rejected alternative: a separate row for every request, which would double the writes to the store.
"""
