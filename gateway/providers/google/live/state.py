"""The state of a session: its settings, the items that are not sent yet, and the open turns of the model."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.realtime import UNLIMITED, ServerEvent
from gateway.neutral.usage import Usage, added
from gateway.providers.google.live.caller_events import LiveResponse, write
from gateway.providers.google.live.caller_speech import Speech
from gateway.providers.google.live.session_setup import LiveSettings

Json = dict[str, Any]
Kind = Literal["", "started", "done", "refused", "settings"]


@dataclass(eq=False)
class LiveTurn:
    """A turn of the model, which is the unit of usage.

    `ident` is the id of its first response, and `response` the response in progress. `quiet`: its response has ended,
    so further content is counted and not passed on. `begun`: some content arrived. `generated`: it is complete.
    `redone`: it was requested again before its content began. `over`: it has ended, and its usage may arrive until
    `due` (monotonic time); the usage of a tool call has a `due`, too. `reason` is the reason of its end.
    """

    ident: str
    response: LiveResponse | None = None
    usage: Usage | None = None
    quiet: bool = False
    generated: bool = False
    over: bool = False
    interrupted: bool = False
    cancelled: bool = False
    begun: bool = False
    redone: bool = False
    reason: str = ""
    due: float | None = None

    def count(self, usage: Usage) -> None:
        """Add usage, which the provider reports in parts."""
        if self.usage is None:
            self.usage = usage
        else:
            self.usage = added((self.usage, usage))


@dataclass(eq=False)
class LiveState:
    """The state of a session.

    `pending` (turns by item id) and `results` (function responses) are not sent to the upstream yet. `calls` has the
    function names of open calls by call id. `out` has the next events for the caller.

    `said`: the upstream has a part of the conversation. `blocked`: the model waits for the results of its calls.
    `handle` resumes the conversation on another connection; `fresh`: it covers the whole conversation. `leaving`: the
    connection ends soon. `stale`: the settings changed since its setup. `overridden`: a single response has separate
    instructions. `uncounted`: the last turn ended without usage. `expected`: the upstream detected speech, and answers
    without a request.
    """

    settings: LiveSettings
    turns: deque[LiveTurn] = field(default_factory=deque)
    pending: dict[str, Json] = field(default_factory=dict)
    pending_size: int = 0
    results: list[Json] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    out: deque[ServerEvent] = field(default_factory=deque)
    conversation: str = field(default_factory=lambda: f"conv_{new_hex()}")
    last: str | None = None
    handle: str | None = None
    fresh: bool = False
    said: bool = False
    blocked: bool = False
    leaving: bool = False
    stale: bool = False
    overridden: bool = False
    uncounted: bool = False
    expected: bool = False
    speech: Speech = field(init=False)

    def __post_init__(self) -> None:
        self.speech = Speech(self.emit, self.append)

    def emit(self, wire: Json) -> None:
        """Queue an event for the caller."""
        self.out.append(ServerEvent(text=write(wire)))

    def emit_counted(self, kind: Kind, wire: Json | None = None, **about: Any) -> None:
        """Queue an event with a meaning for accounting; without `wire` the caller gets no event."""
        self.out.append(ServerEvent(kind, text="" if wire is None else write(wire), **about))

    def refuse(self, error: InvalidRequest, ident: str = "") -> None:
        """Queue an error event for the caller's event with the id `ident`, or for none."""
        wire = {
            "type": "invalid_request_error",
            "code": error.code,
            "message": error.message,
            "param": error.param or None,
            "event_id": ident or None,
        }
        self.emit_counted("refused", {"type": "error", "error": wire}, id=ident)

    def append(self, item: str | None) -> str | None:
        """Append an item to the conversation, and return the id of the preceding item."""
        previous = self.last
        self.last = item or self.last
        return previous

    @property
    def response(self) -> LiveResponse | None:
        """The response in progress."""
        return next((turn.response for turn in self.turns if turn.response is not None), None)

    def new_response(self, metadata: Any = None, spoken: bool | None = None) -> LiveResponse:
        """Return a new response."""
        session = self.settings.session | {"conversation": self.conversation}
        return LiveResponse(session, self.settings.spoken if spoken is None else spoken, metadata)

    def session(self, kind: str) -> None:
        """Queue a session event with the current settings."""
        wire = {"type": f"session.{kind}", "session": self.settings.session}
        limit = self.settings.session["max_output_tokens"]
        if limit == "inf":
            limit = UNLIMITED
        # The transcription has no separate model and no separate price.
        self.emit_counted("settings", wire, auto_responds=self.settings.detects, most_output=limit, transcriber="")
