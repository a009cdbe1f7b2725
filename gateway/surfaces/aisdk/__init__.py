"""The AI SDK's language-model protocol, majors 5, 6 and 7 (specification versions 2, 3 and 4), in front of the chat
engine.

Requests of any version are accepted, answers are written in the newest; `versions` converts an answer down, one step
for each older version.
"""
