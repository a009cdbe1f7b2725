"""Work that several ask for at once and one does."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Ended(Exception):
    """The request that worked was ended by its caller."""


class SharedCalls(Generic[K, V]):
    """Of those who ask for a key at the same time the first one works; the others wait for its result."""

    def __init__(self) -> None:
        self._running: dict[K, Future[V]] = {}

    def run(self, key: K, work: Callable[[], V]) -> V:
        """What `work` gives, or its exception, for all who ask while it runs. When the request that works is ended by
        its caller, the next one works."""
        while (shared := self._running.get(key)) is not None:
            try:
                return shared.result()
            except _Ended:
                continue
        shared = self._running[key] = Future()
        try:
            value = work()
        except Exception as error:
            shared.set_exception(error)
            raise
        except BaseException:
            shared.set_exception(_Ended())
            raise
        finally:
            del self._running[key]
        shared.set_result(value)
        return value
