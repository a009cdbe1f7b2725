"""The surface for the Anthropic messages format: parses requests into the neutral form and writes responses from it.

It may not know which provider serves. Reasoning of other vendors is returned in thinking blocks with a gateway
signature that names the vendor (opaque_tokens.py), so that clients that know only this format send it back. Decided
against: members outside the format's own objects except `usage.cost` and `metadata`, which its SDKs tolerate.
"""
