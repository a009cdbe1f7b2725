"""The OpenAI wire format as many providers serve it: OpenAI's own by default, others by their entry's quirks.

May not know any other provider by name. Decided against: validating upstream responses with schemas (servers of this
format differ too much; unknown members are skipped, missing ones have defaults).
"""
