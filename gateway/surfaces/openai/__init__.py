"""The OpenAI-shaped surface: what a caller writes into the neutral form, and the neutral form back into its words.

It may not know which provider answers: it neither imports providers nor asks for their names beyond the text that
a reply shows. Decided against: one schema for request and reply (only what comes from outside is checked), and
keeping unknown members for upstreams (they are accepted and have no effect, at every depth).
"""
