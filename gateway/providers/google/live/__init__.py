"""Google's Live API behind realtime sessions: spoken with the upstream, while callers speak OpenAI's Realtime API.

`codec` opens a session, `session` is one: an actor that takes the caller's events and the upstream's messages one after
the other. `commands` carries out what the caller wants, `answers` tells them what the model does; `settings` and
`items` write their session and their conversation in Google's words, `events` write what they are told.

Facts: Gemini API, "Live API" (WebSockets reference, capabilities, session management, best practices) and the types
that google-genai publishes. A turn of the model is what is counted and paid for: from its first sign to its
`turnComplete`. It may be several responses of the caller's format, since one ends there with each call of a tool.
"""
