"""The lines of the input of a batch: read in pieces, checked for their form, and never whole in memory."""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated

from msgspec import DecodeError, Meta, Raw, Struct, ValidationError, json

from gateway.runtime.line_splitting import split_lines
from gateway.runtime.loop_turns import low_priority_turn
from gateway.runtime.threads import compute_if

LARGE = 1 << 16  # bytes of a line that is decoded in a thread
SKIPPED = 128  # lines that one turn of the event loop passes over


class LineForm(Struct):
    """A line as OpenAI's batch API has it."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=512)]
    url: str
    body: Raw
    method: str = "POST"


class InputLine(Struct, frozen=True):
    """A line: its number from 1, its caller's id, the path and the body of its request. `problem` says why it cannot be
    read."""

    number: int
    custom_id: str = ""
    url: str = ""
    body: bytes = b""
    problem: str = ""


FORM = json.Decoder(LineForm)


def read_lines(pieces: Iterable[bytes], max_bytes: int) -> Iterator[InputLine]:
    """Yield the lines of a file, without empty ones. A line of more than `max_bytes` is the last one."""
    for number, text in enumerate(split_lines(pieces, max_bytes), 1):
        low_priority_turn()
        if len(text) > max_bytes:
            yield InputLine(number, problem=f"The line is longer than {max_bytes} bytes.")
            return
        yield compute_if(len(text) > LARGE, read_line, number, text)


def find_ids(pieces: Iterable[bytes], max_bytes: int, numbers: Collection[int], most_bytes: int) -> dict[int, str]:
    """Return the ids that the caller gave the lines with these numbers, as far as they are in the first `most_bytes`.
    Other lines are not decoded, which takes most of the time."""
    found: dict[int, str] = {}
    last = max(numbers, default=0)
    size = 0
    for number, text in enumerate(split_lines(pieces, max_bytes), 1):
        size += len(text)
        if number > last or size > most_bytes or len(text) > max_bytes:
            break
        if number % SKIPPED == 0:
            low_priority_turn()
        if number in numbers:
            found[number] = compute_if(len(text) > LARGE, read_line, number, text).custom_id
    return found


def read_line(number: int, text: bytes) -> InputLine:
    """Return a line."""
    try:
        form = FORM.decode(text)
    except ValidationError as error:
        return InputLine(number, problem=f"The line is invalid: {error}.")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return InputLine(number, problem="The line is not valid JSON.")
    if form.method != "POST":
        return InputLine(number, form.custom_id, problem="The method of a line must be POST.")
    return InputLine(number, form.custom_id, form.url, bytes(form.body))
