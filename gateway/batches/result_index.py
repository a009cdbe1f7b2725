"""Downloads of the results of a provider's batch: indexed by line in a temporary file, whatever the provider sends."""

import re
from array import array
from collections.abc import Collection

from gateway.batches.native_rows import ProviderBatchRow
from gateway.errors import GatewayError, Unavailable
from gateway.providers.batches.batch_calls import BatchCalls
from gateway.providers.batches.batch_codec import ENDED, MAX_DIGITS, UNREADABLE, ProviderBatch, ResultLine
from gateway.providers.protocol import Target
from gateway.runtime.large_files import StoredFile

SPOOL_BYTES = 1 << 30  # of one download; the results beyond are left to the next one
SPARE_RESULTS = 100  # that a provider may send beyond one for each line
NAMED_BYTES = 1 << 15  # at the beginning and at the end of an unreadable result, in which its line is named


class ForeignResults(Exception):
    """The results are those of another batch."""


class ResultIndex:
    """Results in a temporary file, found by the number of their line.

    `unreadable` are the lines whose results have no known form, `strange` counts results that are of no line. `is_cut`:
    there are more results than one download takes. `error` is how the download ended early.
    """

    def __init__(self, spool_dir: str) -> None:
        self._file = StoredFile(spool_dir)
        self._places: dict[int, int] = {}
        self._starts = array("q")
        self._sizes = array("q")
        self._statuses = array("i")
        self.unreadable: set[int] = set()
        self.strange = 0
        self.is_cut = False
        self.error: GatewayError | None = None

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, result: ResultLine) -> None:
        """Add a result; of several for one line the first counts."""
        if number in self._places:
            return
        if len(self._file) + len(result.body) > SPOOL_BYTES and self._places:
            self.is_cut = True
            return
        self._places[number] = len(self._starts)
        self._starts.append(len(self._file))
        self._sizes.append(len(result.body))
        self._statuses.append(result.status)
        self._file.write(result.body)

    def status(self, number: int) -> int:
        return self._statuses[self._places[number]]

    def body(self, number: int) -> bytes:
        place = self._places[number]
        return self._file.read(self._sizes[place], self._starts[place])

    def close(self) -> None:
        self._file.close()


def download(
    calls: BatchCalls, part: ProviderBatchRow, target: Target, index: ResultIndex, wanted: Collection[int]
) -> None:
    """Read the results of the lines `wanted` of a part. An error of the provider is noted in the index, with what
    arrived before it. ForeignResults; Unavailable of the gateway itself."""
    results = calls.results(ProviderBatch(part.remote, ENDED, part.word, files=tuple(part.files.split())), target)
    left = part.total + SPARE_RESULTS
    is_own = part.verified
    try:
        for result in results:
            number = _number_of(part.id, result)
            if number is None and not is_own:
                raise ForeignResults
            is_own = True
            left -= 1
            if left < 0:  # no batch has so many
                index.strange += 1
                break
            if number is None:
                index.strange += 1
            elif number in wanted:  # not one that has a result, or is sent in another way, since an earlier download
                if result.status == UNREADABLE:
                    index.unreadable.add(number)
                else:
                    index.add(number, result)
    except GatewayError as error:
        if isinstance(error, Unavailable) and not error.upstream_status:
            raise
        index.error = error
    finally:
        close = getattr(results, "close", None)
        if close is not None:
            close()
    index.unreadable.difference_update([number for number in index.unreadable if number in index])


def _number_of(part: str, result: ResultLine) -> int | None:
    """Return the number of the line of a result; None where that is unknown."""
    if result.status == UNREADABLE:
        # The answer of a model may quote anything: the name counts if it is the only one.
        body = result.body
        if len(body) > 2 * NAMED_BYTES:  # a search of all of it would block the event loop
            body = b"%b\n%b" % (body[:NAMED_BYTES], body[-NAMED_BYTES:])
        names = set(re.findall(rb"\b%b-([0-9]{1,%d})\b" % (re.escape(part.encode()), MAX_DIGITS), body))
        return int(names.pop()) if len(names) == 1 else None
    name, _, digits = result.custom_id.rpartition("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS
    return int(digits) if name == part and is_number else None
