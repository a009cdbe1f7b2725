"""The size of media in requests: pages and text of documents, seconds of sound, and the tokens that follow from both.

Nothing that a caller declares is believed: names, media types, headers and declared lengths only ever raise a count.
"""
