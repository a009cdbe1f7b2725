"""A cache of values read from the store, valid while the control version is unchanged."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from gateway.control.version import Control
from gateway.runtime.call_merging import SharedCalls

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class VersionedCache(Generic[K, V]):
    """A bounded cache, emptied when the control version changes.

    Concurrent misses of one key share one read that began under the version they saw: a request that starts after a
    confirmed change is never answered from an earlier read. Values for which `minor` is true (refusals of unknown
    tokens) have a separate limit, so that a flood of them does not evict the others.
    """

    def __init__(
        self, control: Control, size: int, minor: Callable[[V], bool] | None = None, minor_size: int = 1
    ) -> None:
        self._control = control
        self._size = size
        self._minor = minor
        self._minor_size = minor_size
        self._version = -1
        self._values: dict[K, V] = {}
        self._minors: dict[K, V] = {}
        self._shared_calls: SharedCalls[tuple[int, K], V] = SharedCalls()

    def get(self, key: K, read: Callable[[int], V]) -> V:
        """Return the value of `key`, from memory or from `read(version)`. Raises Unavailable if the store fails."""
        version = self._control.check()
        if version != self._version:
            self._forget(version)
        value = self._values.get(key)
        if value is None:
            value = self._minors.get(key)
            if value is None:
                return self._read(key, version, read)
        return value

    def _forget(self, version: int) -> None:
        self._version = version
        self._values = {}
        self._minors = {}

    def _read(self, key: K, version: int, read: Callable[[int], V]) -> V:
        return self._shared_calls.run((version, key), lambda: self._keep(key, version, read(version)))

    def _keep(self, key: K, version: int, value: V) -> V:
        # A read that a change overtook may hold the old state: it serves its waiting callers, but is not cached.
        if version != self._version:
            return value
        values = self._values
        size = self._size
        if self._minor is not None and self._minor(value):
            values = self._minors
            size = self._minor_size
        if len(values) >= size:
            del values[next(iter(values))]
        values[key] = value
        return value
