"""The OpenAI wire format, as OpenAI serves it and, with the quirks of catalogue entries, as other providers do.

This package must not contain the name of another provider. Decided against: validating upstream responses with schemas
(servers of this format differ too much; unknown members are skipped, missing members have defaults).
"""
