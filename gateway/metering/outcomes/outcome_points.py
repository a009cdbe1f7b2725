"""Points of agents' telemetry that count an outcome, and the export that brought them."""

from hashlib import blake2b
from typing import NamedTuple

NO_SERIES = b""  # of points that are differences already
DIGEST_BYTES = 16


class OutcomePoint(NamedTuple):
    """A number of one outcome. A point with a `series` is cumulative: it counts by how much it exceeds the one before
    of its series. `time_us` is the end of what it counts, `start_us` the beginning, 0 if the sender does not know it;
    `session`, `model` and `repository` are "" if it names none."""

    agent: str
    outcome: str
    session: str
    model: str
    amount: int
    series: bytes
    start_us: int
    time_us: int
    repository: str = ""


class OutcomeExport(NamedTuple):
    """The points of an export of a key. `digest` identifies the export, which senders repeat when they got no answer;
    ids are the 16 bytes after their prefix."""

    digest: bytes
    organization: bytes
    project: bytes
    api_key: bytes
    member: bytes
    points: list[OutcomePoint]


def export_digest(body: bytes) -> bytes:
    """Return what identifies an export. It has the times of its points, so that only repetitions are equal."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()
