"""Merging of concurrent calls for the same key: one caller does the work."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Ended(Exception):
    """The request that did the work was cancelled by its caller."""


class SharedCalls(Generic[K, V]):
    """Merges concurrent calls: the first caller of a key works, the others wait for its result."""

    def __init__(self) -> None:
        self._running: dict[K, Future[V]] = {}

    def run(self, key: K, work: Callable[[], V]) -> V:
        """Return the result of `work`, or raise its exception, for all callers during its run.

        If the working request is cancelled by its caller, the next one works.
        """
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
