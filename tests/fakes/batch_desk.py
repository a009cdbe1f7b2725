"""The state of a batch API of a provider in its fake, and the faults that it can have."""

import io
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fakes.server import send_json
from multipart import MultipartParser, parse_options_header

NUMBERS = itertools.count(1)  # providers never use an id twice


@dataclass
class KeptBatch:
    """A batch of the fake, with its lines (custom id, body) and their results once it has run."""

    ident: str
    lines: list[tuple[str, Any]]
    body: dict[str, Any]
    created_at: int
    state: str = "working"  # ended, canceled, expired, failed
    results: dict[str, tuple[int, Any]] = field(default_factory=dict)
    files: tuple[str, ...] = ()


@dataclass
class Desk:
    """The state of a batch API, and its faults.

    `held`: batches stay in progress. `failing`: every call about batches and files is answered with 500.
    `lost_replies`: so many creations succeed without an answer. `failed_creations`: so many creations are answered with
    500, and create nothing. `partial`: a batch expires after this many lines.
    `refused`: a batch fails at once for this reason. `busy`: numbers of lines that the provider could not serve for the
    moment. `spoilt`: numbers of lines whose results are broken off. `shuffled`: results come in the reverse order.
    `absent`: there is no batch API.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, KeptBatch] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    held: bool = False
    failing: bool = False
    lost_replies: int = 0
    failed_creations: int = 0
    partial: int | None = None
    refused: str = ""
    busy: tuple[int, ...] = ()
    spoilt: tuple[int, ...] = ()
    shuffled: bool = True
    absent: bool = False
    numbers: Iterator[int] = NUMBERS
    clock: Callable[[], float] = lambda: datetime.now(UTC).timestamp()

    def forget(self) -> None:
        """Forget all batches."""
        self.batches.clear()

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers):06}"

    def begin(self, prefix: str, lines: list[tuple[str, Any]], body: dict[str, Any]) -> KeptBatch:
        batch = KeptBatch(self.new(prefix), lines, body, int(self.clock()))
        self.batches[batch.ident] = batch
        return batch

    def advance(self, batch: KeptBatch, answer: Callable[[Any], tuple[int, Any]]) -> None:
        """Run the lines of a batch that is not held back."""
        if batch.state != "working" or self.held:
            return
        if self.refused:
            batch.state = "failed"
            return
        wanted = batch.lines if self.partial is None else batch.lines[: self.partial]
        for custom_id, body in wanted:
            number = int(custom_id.rpartition("-")[2])
            batch.results[custom_id] = (0, None) if number in self.busy else answer(body)
        batch.state = "ended" if self.partial is None else "expired"

    def file_of(self, lines: list[Any], name: str = "custom_id") -> bytes:
        """Return a file of results, which `name` their lines."""
        written = []
        for line in lines:
            text = json.dumps(line).encode()
            named = json.dumps(line[name]).encode()
            is_spoilt = int(line[name].rpartition("-")[2]) in self.spoilt
            written.append(text[: text.index(named) + len(named) + 9] if is_spoilt else text)
        return b"\n".join(written)

    def page_of(self, size: int, after: str = "") -> tuple[list[KeptBatch], bool]:
        """Return a page of the batches, the newest first, and whether others follow."""
        found = list(self.batches.values())[::-1]
        start = next((place for place, one in enumerate(found, 1) if one.ident == after), 0)
        return found[start : start + size], start + size < len(found)

    def ordered(self, batch: KeptBatch) -> list[tuple[str, tuple[int, Any]]]:
        found = list(batch.results.items())
        return found[::-1] if self.shuffled else found


class BatchFake:
    """The part that the fakes share. The first use of `desk` makes it, because fakes have no constructors. A fake has
    `_answer(environ, call, method, path, payload)`, which raises its exception for what it refuses."""

    @property
    def desk(self) -> Desk:
        return self.__dict__.setdefault("_desk", Desk())

    def begin_again(self) -> None:
        """Forget everything."""
        self.__dict__["_desk"] = Desk()

    def serve_batches(
        self, environ: dict[str, Any], start: Any, call: Any, creates: bool, internal: Any, refusal: type[Any]
    ) -> Any:
        """Answer a call about batches or files. `creates`: it creates a batch; `internal`: the body of an answer with
        500; `refusal`: the exception of `_answer`."""
        if self.desk.failing:
            return send_json(start, 500, internal)
        if creates and self.desk.failed_creations:
            self.desk.failed_creations -= 1
            return send_json(start, 500, internal)
        fake: Any = self
        try:
            payload = environ["wsgi.input"].read()
            answer = fake._answer(environ, call, environ["REQUEST_METHOD"], environ["PATH_INFO"], payload)
        except refusal as refused:
            call.status, call.problem = refused.status, str(refused)
            return send_json(start, refused.status, refused.body)
        call.status = 200
        if creates and self.desk.lost_replies:
            self.desk.lost_replies -= 1
            environ["fake.socket"].shutdown(socket.SHUT_RDWR)
            return []
        return send_json(start, 200, answer)

    def store_lines(self, lines: list[Any]) -> str:
        """Store a file of results; return its id, "" for none."""
        if not lines:
            return ""
        ident = self.desk.new("file-")
        self.desk.files[ident] = self.desk.file_of(lines)
        return ident


def form_of(environ: dict[str, Any], payload: bytes) -> dict[str, Any]:
    kind, options = parse_options_header(environ.get("CONTENT_TYPE", ""))
    assert kind == "multipart/form-data", kind
    parts = MultipartParser(io.BytesIO(payload), options["boundary"], len(payload), memory_limit=len(payload) + 1)
    return {part.name: part.raw if part.filename else part.value for part in parts}
