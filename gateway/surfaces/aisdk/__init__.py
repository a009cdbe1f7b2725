"""The AI SDK's language-model protocol, majors 5, 6 and 7 (specification versions 2, 3 and 4), in front of the chat
engine.

Requests of any version are accepted; responses are written in the newest version, and `versions` converts them down,
one step for each older version.
"""
