"""What a session knows: its settings, what was said and not sent yet, and the turns of the model that are open."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.errors import InvalidRequest
from gateway.ids import new_hex
from gateway.neutral.realtime import UNLIMITED, ServerEvent
from gateway.neutral.usage import Usage, added
from gateway.providers.google.live.caller_events import LiveResponse, write
from gateway.providers.google.live.session_setup import LiveSettings
from gateway.providers.google.live.speech import Speech

Json = dict[str, Any]
Kind = Literal["", "started", "done", "refused", "settings"]


@dataclass(eq=False)
class LiveTurn:
    """A turn of the model: what is counted. `ident` is what it is called outside, the id of its first response, and
    `response` the one that is in progress. `quiet`: its response was ended before it, and what still comes is counted
    and not passed on; `begun`: some of it came, `made`: all of it was made; `redone`: it was asked for again
    before it had begun; `over`: it has ended, and its counts are waited for until `due` (monotonic), as those of a call
    are. `reason` is why it ended where it did."""

    ident: str
    response: LiveResponse | None = None
    usage: Usage | None = None
    quiet: bool = False
    made: bool = False
    over: bool = False
    interrupted: bool = False
    cancelled: bool = False
    begun: bool = False
    redone: bool = False
    reason: str = ""
    due: float | None = None

    def count(self, usage: Usage) -> None:
        """What the provider counts of it comes in parts."""
        if self.usage is None:
            self.usage = usage
        else:
            self.usage = added((self.usage, usage))


@dataclass(eq=False)
class LiveState:
    """`pending` are turns by item id, and `results` function responses, which the upstream does not have yet; `calls`
    the functions of open calls by their ids. `out` is what the caller is told next.

    `said`: the upstream has something of the conversation. `blocked`: the model waits for the results of its calls.
    `handle` lets another connection go on with the conversation, `fresh`: with all of it. `leaving`: the connection
    ends soon; `stale`: the settings changed since its setup; `overridden`: one response has instructions of its own;
    `uncounted`: the last turn ended without counts; `expected`: the upstream noticed what was said, and answers it by
    itself.
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
        self.speech = Speech(self.say, self.append)

    def say(self, wire: Json) -> None:
        """Tell the caller an event."""
        self.out.append(ServerEvent(text=write(wire)))

    def mean(self, kind: Kind, wire: Json | None = None, **about: Any) -> None:
        """Tell the caller an event that counts, or nothing."""
        self.out.append(ServerEvent(kind, text="" if wire is None else write(wire), **about))

    def refuse(self, error: InvalidRequest, ident: str = "") -> None:
        """Tell the caller that something had no effect: their event of this id, if it was one."""
        about = {"type": "invalid_request_error", "code": error.code, "message": error.message}
        told = {**about, "param": error.param or None, "event_id": ident or None}
        self.mean("refused", {"type": "error", "error": told}, id=ident)

    def append(self, item: str | None) -> str | None:
        """An item has its place behind all others. Returns the one before."""
        previous = self.last
        self.last = item or self.last
        return previous

    @property
    def response(self) -> LiveResponse | None:
        """The response in progress."""
        return next((turn.response for turn in self.turns if turn.response is not None), None)

    def respond(self, metadata: Any = None, spoken: bool | None = None) -> LiveResponse:
        """A response that begins."""
        session = self.settings.session | {"conversation": self.conversation}
        return LiveResponse(session, self.settings.spoken if spoken is None else spoken, metadata)

    def session(self, kind: str) -> None:
        """Tell what the session is."""
        wire = {"type": f"session.{kind}", "session": self.settings.session}
        limit = self.settings.session["max_output_tokens"]
        most = UNLIMITED if limit == "inf" else limit
        # What transcribes is no model of its own, and nothing that is paid for apart.
        self.mean("settings", wire, listens=self.settings.detects, most_output=most, transcriber="")
