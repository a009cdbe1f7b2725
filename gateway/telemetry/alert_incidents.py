"""Incidents: the time from the start of a subject's problem to its end, which all workers share.

Each worker notices a problem and its end for itself, some seconds apart. The first one opens the incident, the others
join it, and the first that sees the end closes it, so that an alert and its end are sent once. A problem after the end
is another incident, also within the same minute.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, msgpack

from gateway.clock import DAY_US, HOUR_US, SECOND_US
from gateway.errors import Unavailable
from gateway.store.documents import Documents
from gateway.store.redis import Redis, alert_claim

KIND = "alert_incident"
TTL_S = 3 * 86_400.0
# A problem that continues is reported again after this time, because a restart of all workers hides its end.
REMINDER_US = HOUR_US
REMINDERS_US = {"model.retiring": DAY_US}
# Workers notice one outage at different moments, and their nodes' clocks differ.
JOIN_US = 5 * SECOND_US
MAX_TRIES = 5


class Incident(Struct, array_like=True):
    """`began` identifies the incident. `ended` 0 = it continues. `events` are the alerts it caused, oldest first."""

    began: int
    ended: int
    events: list[str]


class Incidents:
    """Opens, joins and closes incidents. All methods raise Unavailable when the store is down."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def begin(self, event: str, subject: str, at_us: int, seen_end_us: int = 0) -> int:
        """Return the start of the incident that an event belongs to. `seen_end_us`: when this worker last saw the
        subject recover, 0 = never."""
        key = _digest(subject)
        for _ in range(MAX_TRIES):
            stored = self._documents.get(KIND, key)
            incident = msgpack.decode(stored, type=Incident) if stored else None
            if incident is not None and _belongs(incident, event, at_us, seen_end_us):
                if event in incident.events:
                    return incident.began
                changed = Incident(incident.began, incident.ended, [*incident.events, event])
            else:
                changed = Incident(at_us, 0, [event])
            if self._store(key, stored, changed):
                return changed.began
        return at_us

    def end(self, subject: str, at_us: int) -> Incident | None:
        """Close the incident of a subject and return it; None if there is none, or another worker closed it."""
        key = _digest(subject)
        for _ in range(MAX_TRIES):
            stored = self._documents.get(KIND, key)
            incident = msgpack.decode(stored, type=Incident) if stored else None
            if incident is None or incident.ended:
                return None
            if self._store(key, stored, Incident(incident.began, at_us, incident.events)):
                return incident
        return None

    def _store(self, key: str, stored: bytes | None, incident: Incident) -> bool:
        value = msgpack.encode(incident)
        if stored is None:
            return self._documents.put_if_absent(KIND, key, value, TTL_S)
        return self._documents.replace(KIND, key, stored, value, TTL_S)


class OutageClaims:
    """Claims on what one worker does for all while the database is away: files in a directory of the node, and Redis,
    if there is one, for the other nodes."""

    def __init__(self, directory: Path, redis: Redis | None = None) -> None:
        self._directory = directory
        self._redis = redis

    def take(self, name: str, at_us: int) -> bool:
        """Return whether this worker has the claim now: it is not taken, or was longer than REMINDER_US ago."""
        path = self._path(name)
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            if path.exists() and at_us - path.stat().st_mtime_ns // 1000 > REMINDER_US:
                path.unlink(missing_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.utime(path, ns=(at_us * 1000, at_us * 1000))
        except FileExistsError:
            return False
        except OSError:
            return True  # a full disk: two alerts are better than none
        if self._redis is not None:
            with suppress(Unavailable):
                return self._redis.put_if_absent(alert_claim(_digest(name)), b"", REMINDER_US / SECOND_US)
        return True

    def is_taken(self, name: str) -> bool:
        """Return whether a worker of this node has the claim, or had it when another node was first."""
        return self._path(name).exists()

    def drop(self, name: str) -> None:
        """Free the claim of any worker."""
        with suppress(OSError):
            self._path(name).unlink(missing_ok=True)
        if self._redis is not None:
            with suppress(Unavailable):
                self._redis.delete(alert_claim(_digest(name)))

    def _path(self, name: str) -> Path:
        return self._directory / f"{_digest(name)}.claim"


def _belongs(incident: Incident, event: str, at_us: int, seen_end_us: int) -> bool:
    if not incident.ended:
        return at_us < incident.began + REMINDERS_US.get(event, REMINDER_US)
    return at_us <= incident.ended + JOIN_US and not incident.began < seen_end_us <= at_us


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
