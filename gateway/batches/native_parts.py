"""The state and services that sending lines to batch APIs of providers and reading their results share."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway import ids
from gateway.batches.batch_table import DIRECT, BatchJob, BatchTask, LineRows
from gateway.batches.input_lines import InputLine
from gateway.batches.line_port import LinePort
from gateway.batches.native_rows import ProviderBatchRow, ProviderBatchRows
from gateway.billing.admission import Settlements
from gateway.billing.batch_reservation import AUTO, BatchFunds
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import BatchSettings
from gateway.engine.batch_lines import LineEngines
from gateway.errors import GatewayError, UpstreamFailed
from gateway.providers.credentials import Credentials
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams

FIRST_POLL_S = 2.0
POLL_GROWTH = 1.5
MAX_POLL_S = 60.0
MAX_TROUBLE_S = 300.0  # between two calls to a provider that fails
MAX_REASON = 500  # characters of a provider's message that are kept
SETTLED_S = 60.0  # after a creation without an answer; the provider lists the batch by then, or never will
PASSING = (0, 401, 403, 408, 409, 425, 429)  # statuses that say nothing about a batch; 0: no answer


class NativeServices(NamedTuple):
    """The services of a worker that batches of providers need."""

    lines: LineEngines
    upstreams: Upstreams
    credentials: Credentials
    catalogue: Callable[[], Catalogue]
    settlements: Settlements
    spool_dir: str


class NativeBatch(NamedTuple):
    """A batch of the gateway with lines for batch APIs of providers, while this worker has it. `job` returns its row as
    it is now, `may_go` whether this worker still has it and continues; `mode` is AUTO, NATIVE or ""."""

    services: NativeServices
    rows: ProviderBatchRows
    results: LineRows
    port: LinePort
    task: BatchTask
    funds: BatchFunds
    clock: Clock
    mode: str
    parallel: int
    job: Callable[[], BatchJob]
    lines: Callable[[], Iterator[InputLine]]
    may_go: Callable[[], bool]
    is_held: Callable[[], bool]

    def target_of(self, part: ProviderBatchRow) -> Target | None:
        """Return the target of a part; None where model, provider or credential were removed."""
        catalogue = self.services.catalogue()
        model = catalogue.models.get(part.model.partition(":")[0])
        mapping = next((one for one in model.mappings if one.key == part.mapping), None) if model else None
        provider = catalogue.provider(part.provider)
        if mapping is None or provider is None:
            return None
        credentials = self.services.credentials
        credential = credentials.find_for_job(mapping, part.organization, part.source, part.credential)
        return credentials.target(mapping, provider, credential) if credential else None

    @property
    def sends_again(self) -> bool:
        """Whether lines that a provider's batch did not serve are sent as requests."""
        return self.mode == AUTO and not self.is_ending

    @property
    def is_ending(self) -> bool:
        """Whether lines without a result stay without one, because the batch was cancelled or has expired."""
        job = self.job()
        return job.canceled_at is not None or self.clock.now_us() >= job.deadline_at

    def left_of(self, part: ProviderBatchRow) -> list[int]:
        """Return the numbers of a part's lines that have no result."""
        known = self.results.numbers(part.batch)
        return [number for number in self.rows.lines_of(part.id) if number not in known]

    def end_unfinished(
        self, part: ProviderBatchRow, numbers: list[int], message: str, code: str | None = "batch_not_executed"
    ) -> None:
        """Let lines be sent as requests, or give them an error."""
        if self.sends_again:
            self.rows.divert(part.id, numbers)
        if self.sends_again or self.is_ending or not numbers:
            return
        wanted = set(numbers)
        for line in self.lines():
            if line.number in wanted:
                self.write_error(line, UpstreamFailed(message, code=code))

    def write_error(self, line: InputLine, error: GatewayError) -> None:
        """Record an error as the result of a line, which costs nothing."""
        status, body = self.port.write_error(line, error)
        self.results.insert(self.results.row(self.job().id, line.number, ids.new_hex(), status, body, 0))

    def later(self, seconds: float) -> int:
        """Return the time in some seconds."""
        return self.clock.now_us() + round(seconds * SECOND_US)

    def put_off(self, part: ProviderBatchRow, error: GatewayError) -> ProviderBatchRow:
        """Try a part again later, after a call that failed: longer each time."""
        wait_s = min(FIRST_POLL_S * 2 ** min(part.polls, 10), MAX_TROUBLE_S)
        reason = error.message[:MAX_REASON]
        next_at = self.later(wait_s)
        return self.rows.change(part, polls=part.polls + 1, misses=part.misses, next_at=next_at, reason=reason)


def mode_of(task: BatchTask, settings: BatchSettings) -> str:
    """Return how the lines of a batch are sent: AUTO, NATIVE, or "" for requests alone."""
    if task.sending == DIRECT or not settings.native:
        return ""
    return task.sending


def is_final(error: GatewayError) -> bool:
    """Return whether an error of a call about a batch will not pass: the provider refused the call itself."""
    return 400 <= error.upstream_status < 500 and error.upstream_status not in PASSING
