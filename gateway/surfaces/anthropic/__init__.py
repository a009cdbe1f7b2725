"""The Anthropic-shaped surface: what a caller writes into the neutral form, and the neutral form back into its words.

It may not know which provider answers. Reasoning of other makers travels in thinking blocks whose signature is ours
and names the maker (seals.py), so that it survives the way through a client that knows this format alone. Decided
against: members outside the format's own objects beyond `usage.cost` and `metadata`, which its SDKs tolerate.
"""
