"""The state of the choices of one stream of chat completion chunks: their blocks, calls and ends."""

from typing import Any

from msgspec import Struct, field

from gateway import ids
from gateway.neutral.chat import FinishReason
from gateway.neutral.tool_arguments import NOTHING, plain_arguments, unwrapped
from gateway.providers.openai.reply import arguments_text, details_text, text_of

# Members of a choice that belong to the content of its chunk rather than to its end.
OF_CONTENT = ("delta", "logprobs", "usage")


MAX_TRIES = 64


class CallState(Struct):
    """A tool call in progress: `slot` is its index among the choice's calls. `filled`: it has arguments. `wrapped` are
    the pieces of arguments that are a JSON string so far, `tries` how often they were parsed."""

    slot: int
    block: int
    id: str
    name: str
    filled: bool = False
    wrapped: list[str] | None = None
    tries: int = 0

    def take(self, piece: str) -> str:
        """Return what a piece of the arguments adds to their text: nothing for a blank beginning, and the whole object
        at the end of arguments that are encoded once more as a string."""
        if self.filled:
            return piece
        if self.wrapped is None:
            text = piece.strip()
            if text in NOTHING:
                return ""
            if text[0] != '"':
                self.filled = True
                return piece
            self.wrapped = []
        self.wrapped.append(piece)
        if piece.rstrip().endswith('"') and self.tries < MAX_TRIES:
            self.tries += 1
            whole = unwrapped("".join(self.wrapped))
            self.filled = bool(whole)
            return whole
        return ""

    def rest(self) -> str:
        """Return what the arguments lack at the end, since clients parse them."""
        return plain_arguments("".join(self.wrapped or ()))


class ChoiceState(Struct):
    """The state of one choice. `end` is the wire choice with the finish reason, which waits for the end of the stream:
    some servers repeat a reason in every chunk."""

    kind: str = ""
    block: int = -1
    calls: list[CallState] = field(default_factory=list)
    by_index: dict[Any, CallState] = field(default_factory=dict)
    finish: FinishReason | None = None
    end: dict[str, Any] | None = None
    thought: list[str] = field(default_factory=list)  # the text of `reasoning_details` so far
    thought_size: int = 0

    def open(self, kind: str) -> int:
        """Return the block index for a delta of `kind`: the current block, or a new one when the kind changes."""
        if kind != self.kind:
            self.kind = kind
            self.block += 1
        return self.block

    def reported(self, delta: dict[str, Any]) -> str:
        """Return the new text in `reasoning_details`: some servers send pieces, others always the whole text so far."""
        text = details_text(delta)
        if 0 < self.thought_size < len(text):
            self.thought = ["".join(self.thought)]
            text = text.removeprefix(self.thought[0])
        self.thought.append(text)
        self.thought_size += len(text)
        return text

    def number(self, call: dict[str, Any]) -> tuple[CallState, bool]:
        """Return the call that a delta belongs to, and whether the delta starts it. Writes the index into it, and
        the id into the first one of a call. Later ones keep neither id nor name, since clients join repeated texts.

        Calls are distinguished by index. Servers that omit the index, or send 0 for every call, start a new call with a
        new name and id. An id that changes without a name is ignored.
        """
        inner = call.get("function") or call.get("custom") or {}
        index = call.get("index")
        ident = text_of(call.get("id"))
        known: CallState | None
        if index is None and not ident and self.calls:
            known = self.calls[-1]
        else:
            known = self.by_index.get(ident if index is None else index)
        if known is not None and inner.get("name") and ident and ident != known.id:
            known = None
        fresh = known is None
        if known is None:
            self.kind = "call"
            self.block += 1
            known = CallState(len(self.calls), self.block, ident or f"call_{ids.new_hex()}", text_of(inner.get("name")))
            self.calls.append(known)
            self.by_index[ident if index is None else index] = known
            call["id"] = known.id
            # Some servers leave the type out.
            call["type"] = "custom" if "custom" in call else "function"
        else:
            call.pop("id", None)
            if known.name and inner.get("name") == known.name:
                del inner["name"]
        call["index"] = known.slot
        if "custom" in call:
            known.filled = True
        elif "arguments" in inner:
            inner["arguments"] = known.take(arguments_text(inner))
        return known, fresh

    def broken(self) -> list[CallState]:
        """Return the calls with a beginning of arguments that was never completed."""
        return [call for call in self.calls if call.wrapped and not call.filled]

    def reason(self) -> FinishReason:
        """Return the finish reason. Some servers say "stop" beside calls, while clients continue only after
        "tool_calls"."""
        if self.calls and self.finish in (None, "stop"):
            return "tool_calls"
        return self.finish or "stop"

    def hold_end(self, wire: dict[str, Any]) -> bool:
        """Keep the end that a wire choice contains. Return whether the choice has content besides, which is then left
        in it without the end."""
        delta = wire["delta"]
        if not any(delta.values()):
            self.end = wire
            return False
        self.end = {name: value for name, value in wire.items() if name not in OF_CONTENT}
        wire["finish_reason"] = None
        return True

    def write_end(self, number: int) -> dict[str, Any] | None:
        """Return the wire choice that ends the choice, None where its server sent none and no call lacks arguments.
        Calls without arguments get an empty object, since clients parse the arguments."""
        empty = [{"index": call.slot, "function": {"arguments": call.rest()}} for call in self.calls if not call.filled]
        if self.end is None and not empty:
            return None
        end = {"index": number, **(self.end or {}), "finish_reason": self.reason()}
        delta = dict(end.get("delta") or ())
        if empty:
            delta["tool_calls"] = empty
        return {**end, "delta": delta}
