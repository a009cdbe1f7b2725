"""The built-in sandbox provider: an upstream without a network, for a first request, for demonstrations and for tests.

It is only the server side. It takes the call that a protocol built and answers in the chat completions wire format, so
that writing, reading, failover and billing are those of every other provider. The same request gets the same answer;
faults are requested by model or by a directive in the prompt (docs/sandbox.md).

It may not know callers, accounts, prices or the neutral form. Decided against: a protocol of its own (nothing above
would be exercised), a separate process (a first request must work without one), random answers and remembered
conversations (an answer must be repeatable; the only memory is the counter of `attempt=`).
"""
