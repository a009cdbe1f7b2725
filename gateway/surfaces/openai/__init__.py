"""The surface for OpenAI's formats: parses requests into the neutral form and writes answers from it.

It may not know which provider answers: it neither imports providers nor uses their names except as text in a reply.
Decided against: one schema for request and reply (only input is validated), and passing unknown members to upstreams
(they are accepted and have no effect, at every depth).
"""
