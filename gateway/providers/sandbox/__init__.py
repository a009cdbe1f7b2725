"""The built-in sandbox provider: an upstream without a network, for first requests, demonstrations and tests.

It is only the server side. It receives the call that a protocol built and answers in OpenAI's wire format, so that
writing, reading, failover and billing are the same as for every other provider. The same request gets the same answer.
Faults are requested by model or by a directive in the prompt (docs/sandbox.md).

This package must not depend on callers, accounts, prices or the neutral form. Decided against: a separate protocol (the
real ones would not be exercised), a separate process (a first request must work without one), random answers and stored
conversations (an answer must be repeatable; the only state is the counter of `attempt=`).
"""
