"""Realtime sessions over Google's Live API, for callers that use OpenAI's Realtime API.

`session_opener` opens a session. `live_session` is an actor that handles the caller's events and the upstream's
messages one after another. `commands` carries out the caller's events and writes the conversation in Google's format,
and `model_output` turns the upstream's messages into events. `session_setup` writes the session in Google's format, and
`state` holds the state of a session and writes the events for the caller.

Wire facts: Gemini API, "Live API" (WebSockets reference, capabilities, session management, best practices) and the
types of google-genai. Usage is reported and billed by turn of the model, from its first content to its `turnComplete`.
A turn may be several responses of the caller's format, in which a response ends at each tool call.
"""
