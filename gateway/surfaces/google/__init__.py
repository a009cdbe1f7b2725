"""The surface for Gemini's own API: parses requests into the neutral form and writes responses from it.

It may not know which provider serves. Signatures and reasoning of other vendors are returned in `thoughtSignature`, in
an envelope that names the vendor (opaque_tokens.py). Decided against: members outside the format's own objects except
the cost in `usageMetadata` and `metadata`, which its SDKs tolerate.
"""
