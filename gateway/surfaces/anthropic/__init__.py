"""The Anthropic-shaped surface: what a caller writes into the neutral form, and the neutral form back into its words.

It may not know which provider answers. Reasoning of other vendors travels in thinking blocks whose signature is ours
and names the vendor (opaque_tokens.py), so that clients that know this format alone bring it back. Decided
against: members outside the format's own objects beyond `usage.cost` and `metadata`, which its SDKs tolerate.
"""
