"""Runs: logged requests with retained payloads, sent to another model as a batch of one of the visitor's keys.

A run is a batch (`RUN_PREFIX`): its requests are checked and their highest cost is held before the first one is sent,
they pay like all requests of the key, and each is a request of the log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import orjson
from msgspec import DecodeError, Raw, Struct, json

from gateway.batches.batch_table import DIRECT, RUN_PREFIX, BatchJob, BatchTask
from gateway.batches.line_checks import CheckedBatch
from gateway.billing.batch_reservation import AUTO
from gateway.callers.authentication import Caller
from gateway.catalogue.prices import cost_of
from gateway.errors import InvalidRequest, NotFound
from gateway.metering.log.archived_requests import search_log
from gateway.metering.log.records import LoggedRequest, read_requests
from gateway.metering.log.search import LogFilter, LogScope, is_seen
from gateway.metering.payload_table import SENT_CUT
from gateway.neutral.usage import Usage
from gateway.runtime.loop_turns import low_priority_turn
from gateway.runtime.threads import compute_if
from gateway.surfaces.visitors.resent_requests import LEFT_OUT_OF_CHATS
from gateway.worker.services import Services

MAX_REQUESTS = 200
MAX_SENT_BYTES = 4_000_000  # of a request
MAX_ALL_BYTES = 64_000_000  # of all requests of a run
PAGE = 100
MAX_PAGES = 20  # of the log that are searched
LARGE = 1 << 16
# The paths of logged requests that can be lines of a batch.
CHAT_COMPLETIONS = "/v1/chat/completions"
ENDPOINTS = (CHAT_COMPLETIONS, "/v1/responses", "/v1/messages")
CHAT = "chat"
METADATA = {"run": "logged requests"}


class Selection(Struct, frozen=True):
    """The newest requests of a filter that can be sent again, of one `endpoint`. `left_out` counts those of others, and
    `unfit` those with an incomplete payload or one that is too large."""

    endpoint: str
    requests: list[LoggedRequest]
    left_out: int
    unfit: int


class RunEstimate(Struct, frozen=True):
    """The cost of a run before it starts: `bound_nusd` at most. `likely_nusd` is the price of the tokens that the
    requests had, None for a model without one price, such as a route. `problems` are the requests that the model cannot
    get, with the reason."""

    requests: list[LoggedRequest]
    bound_nusd: int
    likely_nusd: int | None
    past_nusd: int
    problems: list[tuple[LoggedRequest, str]]


class RunResult(NamedTuple):
    """The result of a line: the original request, the id of the new one ("" while it was not sent), its status and
    answer."""

    original: str
    request_id: str
    status: int
    answer: bytes


def select(services: Services, scopes: Sequence[LogScope], filters: LogFilter, count: int, endpoint: str) -> Selection:
    """Return up to `count` requests of a filter; endpoint "": the first of which so many are found, or else the most
    frequent one."""
    found: dict[str, list[LoggedRequest]] = {path: [] for path in ENDPOINTS if endpoint in ("", path)}
    unfit = 0
    before = None
    for _ in range(MAX_PAGES):
        page = search_log(services.store.database, scopes, filters._replace(retained=True), before, PAGE)
        for request in page.requests:
            if request.operation != CHAT or request.path not in found or _is_full(found, count):
                continue
            if _fits(request):
                found[request.path].append(request)
            else:
                unfit += 1
        before = page.following
        if before is None or _is_full(found, count):
            break
    chosen = max(found, key=lambda path: len(found[path]), default=CHAT_COMPLETIONS)
    left_out = sum(len(requests) for path, requests in found.items() if path != chosen)
    return Selection(chosen, found.get(chosen, []), left_out, unfit)


def _is_full(found: Mapping[str, list[LoggedRequest]], count: int) -> bool:
    return any(len(requests) >= count for requests in found.values())


def _fits(request: LoggedRequest) -> bool:
    info = request.payload
    return info is not None and not info.flags & SENT_CUT and info.sent_bytes <= MAX_SENT_BYTES


def find_requests(services: Services, scopes: Sequence[LogScope], idents: Iterable[str]) -> list[LoggedRequest]:
    """Return the requests with these ids (32 hex digits), as far as they are within the scopes. InvalidRequest."""
    try:
        wanted = [bytes.fromhex(ident) for ident in islice(idents, MAX_REQUESTS)]
    except ValueError:
        raise InvalidRequest("An id of a request is invalid. Open the page again.") from None
    database = services.store.database
    read = database.read(partial(read_requests, database, wanted))
    return [request for request in read if is_seen(request, scopes) and request.path in ENDPOINTS and _fits(request)]


def estimate(services: Services, caller: Caller, selection: Selection, model: str, task: BatchTask) -> RunEstimate:
    """Check the requests with another model, and return what they can cost. Errors of `Batches.measure`."""
    lines = write_lines(services, selection.requests, selection.endpoint, model)
    checked: CheckedBatch = services.engine.batches.measure(caller, selection.endpoint, lines, task)
    wrong = {error.line: error.message for error in checked.errors if error.line}
    # The check ends when too many lines are wrong.
    measured = list(enumerate(selection.requests[: checked.total], 1))
    good = [request for number, request in measured if number not in wrong]
    bad = [(request, wrong[number]) for number, request in measured if number in wrong]
    past = sum(request.cost_nusd for request in good)
    return RunEstimate(good, checked.bound_nusd, _likely(services, good, model), past, bad)


def start(
    services: Services, caller: Caller, requests: list[LoggedRequest], model: str, task: BatchTask, most_nusd: int
) -> BatchJob:
    """Create the batch of a run, which may cost up to `most_nusd`. Errors of `Batches.create_checked`."""
    endpoints = {request.path for request in requests}
    if len(endpoints) != 1:
        raise InvalidRequest("None of these requests can be sent again. Look at the cost again.")
    endpoint = endpoints.pop()
    lines = write_lines(services, requests, endpoint, model)
    return services.engine.batches.create_checked(caller, endpoint, lines, task, RUN_PREFIX, most_nusd)


def task_of(model: str, base_url: str, address: str, patient: bool = False) -> BatchTask:
    """Return the options of a run. A `patient` one uses the batch APIs of providers, which cost less and may take a
    day; others are sent as requests, so that their durations can be compared."""
    metadata = {**METADATA, "model": model}
    sending = AUTO if patient else DIRECT
    return BatchTask(metadata=metadata, one_file=True, sending=sending, base_url=base_url, address=address)


def write_lines(services: Services, requests: Iterable[LoggedRequest], endpoint: str, model: str) -> Iterator[bytes]:
    """Yield the requests as lines of a batch with another model, one in memory at a time. InvalidRequest when they are
    too large together; NotFound for one whose payload was deleted meanwhile."""
    size = 0
    for request in requests:
        low_priority_turn()
        assert request.payload is not None
        sent = services.engine.retention.read(request.payload).sent
        size += len(sent)
        if size > MAX_ALL_BYTES:
            raise InvalidRequest(f"The requests are larger than {MAX_ALL_BYTES // 1_000_000} MB. Choose fewer.")
        yield compute_if(len(sent) > LARGE, _write_line, request.request_id, sent, endpoint, model)


def _write_line(ident: str, sent: bytes, endpoint: str, model: str) -> bytes:
    try:
        body = orjson.loads(sent)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        body = {}  # the check of the line says what is missing
    body = {name: value for name, value in body.items() if name not in LEFT_OUT_OF_CHATS} | {"model": model}
    line = {"custom_id": ident, "method": "POST", "url": endpoint, "body": body}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _likely(services: Services, requests: list[LoggedRequest], model: str) -> int | None:
    """Return the price of the requests' own tokens at the cheapest provider of a model, without its caches."""
    mappings = services.engine.chat.routes.prices.mappings_of(model)
    if not mappings or any(request.last is None for request in requests):
        return None
    now_us = services.clock.now_us()
    total = 0
    for request in requests:
        usage = Usage(input=request.input_tokens, output=request.output_tokens)
        total += min(cost_of(usage, mapping, now_us).total for mapping in mappings)
    return total


# The results.


class _ResultResponse(Struct):
    status_code: int
    request_id: str
    body: Raw = Raw(b"null")


class _ResultLine(Struct):
    custom_id: str
    response: _ResultResponse | None = None


RESULT = json.Decoder(_ResultLine)


def read_results(services: Services, job: BatchJob, places: range) -> list[RunResult]:
    """Return the lines of a run in their order with the results so far, those at `places` with their answers.
    Unavailable."""
    results: list[RunResult] = []
    batches = services.engine.batches
    if not job.has_ended:
        for place, one in enumerate(batches.results_so_far(job)):
            row = one.result
            if row is None:
                results.append(RunResult(one.line.custom_id, "", 0, b""))
            else:
                answer = batches.answer_of(row) if place in places else b""
                results.append(RunResult(one.line.custom_id, row.request, row.status, answer))
        return results
    try:
        pieces = batches.results(job)
    except NotFound:  # it failed before the first line
        return []
    for place, line in enumerate(_split(pieces)):
        low_priority_turn()
        results.append(compute_if(len(line) > LARGE, _read_result, line, place in places))
    return results


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; the parts of a long line are joined once."""
    parts: list[bytes] = []
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for text in ended:
            line = b"".join((*parts, text))
            parts = []
            if line:
                yield line
        parts.append(rest)


def _read_result(line: bytes, with_answer: bool) -> RunResult:
    try:
        read = RESULT.decode(line)
    except DecodeError:
        return RunResult("", "", 0, b"")
    answer = read.response
    if answer is None:
        return RunResult(read.custom_id, "", 0, b"")
    return RunResult(read.custom_id, answer.request_id, answer.status_code, bytes(answer.body) if with_answer else b"")


def read_records(services: Services, idents: Iterable[str]) -> Mapping[str, LoggedRequest]:
    """Return the requests of the log with these ids, by their ids."""
    wanted = [bytes.fromhex(ident) for ident in idents if ident]
    database = services.store.database
    return {one.request_id: one for one in database.read(partial(read_requests, database, wanted))}


def model_of(services: Services, job: BatchJob) -> str:
    """Return the model of a run."""
    metadata: dict[str, Any] = services.engine.batches.rows.task_of(job).metadata or {}
    return str(metadata.get("model", ""))
