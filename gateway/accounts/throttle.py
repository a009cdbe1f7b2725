"""Attempts that are counted, so that guessing passwords and codes is slow; shared by all workers through the store."""

from dataclasses import dataclass

from gateway.accounts.tokens import hash_token
from gateway.clock import SECOND_US
from gateway.errors import RateLimited
from gateway.store.database import Database

COUNT = """INSERT INTO attempt (subject, count, ends_at) VALUES (?, 1, ?) ON CONFLICT (subject) DO UPDATE SET
count = CASE WHEN attempt.ends_at <= ? THEN 1 ELSE attempt.count + 1 END,
ends_at = CASE WHEN attempt.ends_at <= ? THEN excluded.ends_at ELSE attempt.ends_at END"""


@dataclass(frozen=True, slots=True)
class Gate:
    """At most `most` attempts of `subject` at `what` within a window of `span_s` seconds from the first one."""

    what: str
    subject: str
    most: int
    span_s: int


class Throttle:
    """Counters by keyed hash: the store holds neither addresses nor names of who tried."""

    def __init__(self, database: Database, hash_key: bytes) -> None:
        self._database = database
        self._hash_key = hash_key

    def check(self, *gates: Gate) -> None:
        """RateLimited (with the seconds to wait) when one of the gates is full; counts nothing."""
        now = self._database.now_us()
        for gate in gates:
            count, ends_at = self._database.read(lambda gate=gate: self._read(gate))
            if count >= gate.most and ends_at > now:
                raise RateLimited(
                    f"Too many attempts ({gate.what}); wait and try again.",
                    code="too_many_attempts",
                    retry_after=(ends_at - now) / SECOND_US,
                )

    def count(self, *gates: Gate) -> None:
        """Note one attempt at each of the gates; counters whose window is over are forgotten on the way."""
        now = self._database.now_us()

        def write() -> None:
            self._database.execute("DELETE FROM attempt WHERE ends_at <= ?", (now,))
            for gate in gates:
                end = now + gate.span_s * SECOND_US
                self._database.execute(COUNT, (self._name(gate), end, now, now))

        self._database.write(write)

    def take(self, *gates: Gate) -> None:
        """`check`, then `count`."""
        self.check(*gates)
        self.count(*gates)

    def _read(self, gate: Gate) -> tuple[int, int]:
        sql = "SELECT count, ends_at FROM attempt WHERE subject = ?"
        return self._database.execute(sql, (self._name(gate),)).fetchone() or (0, 0)

    def _name(self, gate: Gate) -> str:
        return hash_token(f"{gate.what}\n{gate.subject}", self._hash_key)
