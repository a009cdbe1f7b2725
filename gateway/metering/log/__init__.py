"""The request log: what is known of every request, put together from the rows that are written anyway.

A request's usage rows tell nearly all; a log entry is written besides for one that was refused or failed, and for one
whose caller sent custom metadata. It may not know how requests are admitted or answered.
Decided against: a row of its own for every request, which would double what the store writes to repeat what is there.
"""
