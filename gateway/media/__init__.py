"""The size of media in requests: pages and text of documents, seconds of audio, and the resulting tokens.

Declarations of the caller are not trusted: names, media types, headers and declared lengths can only raise a count.
"""
