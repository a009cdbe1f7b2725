"""The AI SDK's language-model protocol, majors 5, 6 and 7 (specification versions 2, 3 and 4), before the chat engine.

Everything is read in any version and written in the newest; `versions` takes an answer one step down for each older.
"""
