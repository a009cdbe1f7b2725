"""Free memory of the C library's heap, returned to the system."""

import ctypes

from gateway.runtime.threads import compute

_libc = ctypes.CDLL(None)


def return_free_memory() -> None:
    """Return free pages between used ones. Without this call, glibc returns only those at the end of its heap.

    It takes 0.6 ms for 2.5 MB of a heap of 25 MB, and more in a large heap: in a native thread. Other C libraries do
    not have this call (malloc_trim(3)).
    """
    if hasattr(_libc, "malloc_trim"):
        compute(_libc.malloc_trim, 0)
