"""Checks all lines of a batch before the first is sent: their form, ids and requests, and their highest cost."""

from collections.abc import Iterable

from msgspec import Struct, field

from gateway.batches.batch_table import BatchError, BatchJob, BatchTask
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LinePort
from gateway.callers.authentication import Caller
from gateway.errors import GatewayError, Overloaded, Unavailable
from gateway.limits.cost_bound import Payer

MAX_ERRORS = 100  # errors that a batch lists
MAX_PAYERS = 100  # sets of limits that the lines fall under
INVALID_LINE = "invalid_line"


class CheckedBatch(Struct):
    """The lines of a batch: their number, the sum of their bounds by payer, their model ("": several), and errors."""

    total: int = 0
    bounds: dict[Payer, int] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    errors: list[BatchError] = field(default_factory=list)

    @property
    def bound_nusd(self) -> int:
        return sum(self.bounds.values())

    @property
    def model(self) -> str:
        return next(iter(self.models)) if len(self.models) == 1 else ""


def check_lines(
    port: LinePort,
    job: BatchJob,
    task: BatchTask,
    lines: Iterable[InputLine],
    max_lines: int,
    caller: Caller | None = None,
) -> CheckedBatch:
    """Return the checked lines. `caller` is who would send them, None for the key of the batch. Unavailable or
    Overloaded when the gateway cannot check them now, which says nothing about a line."""
    checked = CheckedBatch()
    seen: set[int] = set()
    for line in lines:
        checked.total += 1
        if checked.total > max_lines:
            message = f"The file has more than {max_lines} lines, which is the limit (batches.max_lines)."
            checked.errors.append(BatchError("too_many_lines", message, line.number))
            break
        problem = _problem_of(job, line, seen)
        if problem:
            checked.errors.append(BatchError(INVALID_LINE, problem, line.number))
        else:
            _measure(port, job, task, line, checked, caller)
        if len(checked.errors) >= MAX_ERRORS:
            break
    if not checked.total:
        checked.errors.append(BatchError("empty_file", "The file has no lines."))
    return checked


def _problem_of(job: BatchJob, line: InputLine, seen: set[int]) -> str:
    if line.problem:
        return line.problem
    if line.url != job.endpoint:
        return f"The url of the line must be {job.endpoint}, the endpoint of the batch."
    known = hash(line.custom_id)
    if known in seen:
        return f"The custom_id {line.custom_id[:80]!r} is that of an earlier line."
    seen.add(known)
    return ""


def _measure(
    port: LinePort, job: BatchJob, task: BatchTask, line: InputLine, checked: CheckedBatch, caller: Caller | None
) -> None:
    try:
        bound = port.measure(job, task, line, caller)
    except (Unavailable, Overloaded):
        raise
    except GatewayError as error:
        checked.errors.append(BatchError(error.code, error.message, line.number, error.param or None))
        return
    checked.bounds[bound.payer] = checked.bounds.get(bound.payer, 0) + bound.bound_nusd
    if len(checked.models) < 2:
        checked.models.add(bound.model)
    if len(checked.bounds) > MAX_PAYERS:
        message = f"The lines fall under more than {MAX_PAYERS} sets of limits; split the file."
        checked.errors.append(BatchError("too_many_payers", message, line.number))
