"""Jobs of the inference API as people see them: batches, message batches, videos and background responses."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import list_of, object_of, text_of, unexpected_answer

BATCHES = "/v1/batches"
MESSAGE_BATCHES = "/v1/messages/batches"
VIDEOS = "/v1/videos"
RESPONSES = "/v1/responses"
# The beginning of an id → the address of its kind.
PLACES = {"batch_": BATCHES, "msgbatch_": MESSAGE_BATCHES, "video_": VIDEOS, "resp_": RESPONSES}
RUNNING = ("validating", "in_progress", "finalizing", "cancelling", "canceling", "queued")
DONE = ("completed", "ended")
KINDS = "an id of a batch (batch_…), a message batch (msgbatch_…), a video (video_…) or a response (resp_…)"


class JobView(NamedTuple):
    """A job; `total` counts its lines, `cost` and `bound` are None where the answer has none."""

    id: str
    status: str
    total: int
    done: int
    failed: int
    cost: Any
    bound: Any
    about: str
    created_s: int | None

    @property
    def is_running(self) -> bool:
        return self.status in RUNNING

    @property
    def succeeded(self) -> bool:
        return self.status in DONE


class LineFailure(NamedTuple):
    """The error of a line; None and "" for what its file does not say."""

    line: int | None
    custom_id: str
    error: str
    message: str


def place_of(ident: str) -> str:
    """Return the address of a job. Raises CliError."""
    prefix = next((prefix for prefix in PLACES if ident.startswith(prefix)), "")
    rest = ident.removeprefix(prefix)
    if not prefix or not rest.replace("-", "").isalnum() or not rest.isascii():
        raise CliError(f"{ident!r} is no id of a job.", f"Give {KINDS}; `llmgateway jobs list` shows them.")
    return f"{PLACES[prefix]}/{ident}"


def view(job: dict[str, Any]) -> JobView:
    """Return what an answer of any kind says. Raises CliError."""
    ident = text_of(job, "id")
    if ident.startswith("batch_"):
        counts, costs = _counts(job, "request_counts"), object_of(job, "cost_details")
        done = counts.get("completed", 0) + counts.get("failed", 0)
        return JobView(
            ident,
            text_of(job, "status"),
            counts.get("total", 0),
            done,
            counts.get("failed", 0),
            costs.get("cost"),
            costs.get("bound"),
            text_of(job, "endpoint"),
            job.get("created_at"),
        )
    if ident.startswith("msgbatch_"):
        counts = _counts(job, "request_counts")
        total = sum(counts.values())
        failed = sum(counts.get(name, 0) for name in ("errored", "canceled", "expired"))
        done = total - counts.get("processing", 0)
        status = text_of(job, "processing_status")
        return JobView(ident, status, total, done, failed, None, None, "/v1/messages", _second(job.get("created_at")))
    status = text_of(job, "status")
    done = int(status not in RUNNING)
    usage = job.get("usage")
    cost = usage.get("cost") if isinstance(usage, dict) else None
    model, failed = str(job.get("model") or ""), int(status == "failed")
    return JobView(ident, status, 1, done, failed, cost, None, model, job.get("created_at"))


def _counts(job: dict[str, Any], name: str) -> dict[str, int]:
    return {key: int(value or 0) for key, value in object_of(job, name).items()}


def _second(text: Any) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (TypeError, ValueError):
        return None


# The errors of lines: of the check of a batch, of its error file, and among the results of a message batch.


def failures_of_check(job: dict[str, Any]) -> list[LineFailure]:
    """Return why a batch failed before its first line was sent."""
    errors = job.get("errors")
    found = list_of(errors, "data") if errors else []
    return [
        LineFailure(error.get("line"), "", str(error.get("code") or ""), str(error.get("message") or ""))
        for error in found
    ]


def failures_in(pieces: Iterator[bytes]) -> Iterator[LineFailure]:
    """Yield the errors among the lines of a file of results. Raises CliError for a file of another kind."""
    for number, text in enumerate(_split(pieces), 1):
        try:
            line = object_of(json.loads(text))
        except ValueError:
            raise unexpected_answer("custom_id") from None
        failure = _failure_of(line, number)
        if failure is not None:
            yield failure


def _failure_of(line: dict[str, Any], number: int) -> LineFailure | None:
    ident = str(line.get("custom_id") or "")
    result = line.get("result")
    if isinstance(result, dict):
        kind = str(result.get("type") or "")
        if kind == "succeeded":
            return None
        error = _error_in(result.get("error"))
        return LineFailure(number, ident, str(error.get("type") or kind), str(error.get("message") or "not sent"))
    response = line.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    error = _error_in(response.get("body")) if isinstance(response, dict) else _object(line.get("error"))
    if isinstance(status, int) and status < 400:
        return None
    code = str(error.get("code") or error.get("type") or "")
    return LineFailure(line.get("line"), ident, f"{status} {code}" if status else code, str(error.get("message") or ""))


def _error_in(body: Any) -> dict[str, Any]:
    return _object(_object(body).get("error"))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for text in ended:
            line = b"".join((*parts, text))
            parts = []
            if line.strip():
                yield line
        parts.append(rest)
    if line := b"".join(parts).strip():
        yield line
