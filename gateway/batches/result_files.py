"""The files at the end of a batch: the answers of its lines in their order, and the errors."""

from collections.abc import Iterator
from typing import NamedTuple

from gateway.batches.batch_table import FIRST_ERROR, BatchJob, BatchTask, LineRow, LineRows
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LinePort
from gateway.runtime.loop_turns import low_priority_turn


class LineOutcome(NamedTuple):
    """A line with its result; None for a line that was not sent."""

    line: InputLine
    result: LineRow | None

    @property
    def succeeded(self) -> bool:
        return self.result is not None and self.result.status < FIRST_ERROR


def join_results(lines: Iterator[InputLine], rows: LineRows, batch: str) -> Iterator[LineOutcome]:
    """Yield each line with its result; both are read in the order of the lines."""
    results = rows.walk(batch)
    following = next(results, None)
    for line in lines:
        result = None
        if following is not None and following.number == line.number:
            result = following
            following = next(results, None)
        yield LineOutcome(line, result)


def write_results(
    port: LinePort,
    job: BatchJob,
    task: BatchTask,
    rows: LineRows,
    outcomes: Iterator[LineOutcome],
    reason: str,
    succeeded: bool | None,
) -> Iterator[bytes]:
    """Yield the lines of a file: of those that `succeeded` or did not, None: of all. `reason` is that of lines without
    a result."""
    for outcome in outcomes:
        if succeeded is not None and outcome.succeeded != succeeded:
            continue
        low_priority_turn()
        result = outcome.result
        answer = rows.open(result) if result is not None else b""
        request_id, status = (result.request, result.status) if result is not None else ("", 0)
        yield port.write_result(task, outcome.line, request_id, status, answer, "" if result else reason) + b"\n"
