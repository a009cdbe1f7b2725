"""Vendor-neutral types for requests, streams and results.

Every surface (API format) parses into them and renders from them; so does every provider protocol, in the other
direction. Values are immutable and hold no behaviour beyond small derivations, no vendor's wire names and no I/O.
Opaque provider data that must be sent back unchanged (signatures, encrypted reasoning) is kept byte for byte with the
name of its vendor.

Types that are created for every request or event (requests, requirements, usage, choices, events) are structs that are
immutable by convention: a frozen data class costs 70 ns for each field, 8 µs for each request.
"""
