"""Values read from the store and remembered only while the control version stands."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from gateway.control import Control
from gateway.errors import Unavailable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """A bounded map from key to value, emptied when the control version moves; never written back to the store.

    Concurrent misses of one key share one read, begun under the version they saw: a request that starts after a
    change was confirmed cannot be answered from a read begun before it. Values for which `minor` holds (refusals of
    tokens that nobody knows) are kept apart, so that a flood of them does not push out the others.
    """

    def __init__(
        self, control: Control, size: int, minor: Callable[[V], bool] = lambda value: False, minor_size: int = 1
    ) -> None:
        self._control = control
        self._size = size
        self._minor = minor
        self._minor_size = minor_size
        self._version = -1
        self._values: dict[K, V] = {}
        self._minors: dict[K, V] = {}
        self._shared_calls: dict[tuple[int, K], Future[V]] = {}

    def get(self, key: K, read: Callable[[int], V]) -> V:
        """The value of `key`, from memory or from `read(version)`. Unavailable when the store cannot be asked."""
        version = self._control.check()
        if version != self._version:
            self._forget(version)
        value = self._values.get(key)
        if value is None:
            value = self._minors.get(key)
            if value is None:
                return self._fly(key, version, read)
        return value

    def _forget(self, version: int) -> None:
        self._version = version
        self._values = {}
        self._minors = {}

    def _fly(self, key: K, version: int, read: Callable[[int], V]) -> V:
        shared_call = self._shared_calls.get((version, key))
        if shared_call is not None:
            return shared_call.result()
        shared_call = self._shared_calls[version, key] = Future()
        try:
            value = read(version)
        except Exception as error:
            shared_call.set_exception(error)
            raise
        except BaseException:
            # This request was ended by its caller; those who wait on its read were not.
            shared_call.set_exception(Unavailable())
            raise
        finally:
            del self._shared_calls[version, key]
        self._keep(key, version, value)
        shared_call.set_result(value)
        return value

    def _keep(self, key: K, version: int, value: V) -> None:
        # A read that a change overtook may hold the old state: it serves those who asked, then is forgotten.
        if version != self._version:
            return
        values, size = (self._minors, self._minor_size) if self._minor(value) else (self._values, self._size)
        if len(values) >= size:
            del values[next(iter(values))]
        values[key] = value
