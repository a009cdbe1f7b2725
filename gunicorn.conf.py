"""How gunicorn serves the gateway; every figure an operator may turn comes from config/ and the environment."""

# Before any other import: a module loaded unpatched keeps blocking sockets and thread-wide state for good.
from gevent import monkey

monkey.patch_all()

import ctypes  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402

from gateway.configuration import settings  # noqa: E402
from gateway.server.log import logger_class as make_logger_class  # noqa: E402
from gateway.worker import accepted_configuration  # noqa: E402

OPEN_FILES = 65_536
M_MMAP_THRESHOLD, MAPPED_BYTES = -3, 1 << 20  # <malloc.h>
SHARED_MEMORY = "/dev/shm"

try:
    chosen = (accepted_configuration.current() or accepted_configuration.begin()).settings
except settings.SettingsError as error:
    # One line a mistake and no traceback; gunicorn would print one of any other exception.
    sys.exit("\n".join(f"error: {line}" for line in str(error).splitlines()))
server = chosen.server
if chosen.database.scheme == "sqlite":
    # peewee takes in every driver that it finds: this one is 11 MB in each worker. None means "not there" to Python.
    sys.modules["psycopg"] = None

bind = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
workers = max(1, server.workers)
worker_class = "gateway.server.worker.GatewayWorker"
worker_connections = 10_000
backlog = 2048

# The worker uses the grace up to its last two seconds; what kills the arbiter must wait longer still.
graceful_timeout = max(1, round(server.graceful_timeout_s))
keepalive = round(server.keepalive_s)
# Notices a blocked event loop only: requests have deadlines of their own.
timeout = 60
max_requests = 0
# Each worker loads the application after the fork: no connection, lock or thread is shared.
preload_app = False

# Its socket lies in the home folder, where a second instance would take it over.
control_socket_disable = True
# Whose X-Forwarded-Proto holds; behind a proxy on another host set GATEWAY_SERVER_PUBLIC_URL instead.
forwarded_allow_ips = ",".join(server.trusted_proxies)
proc_name = "llmgateway"
errorlog = "-"
logger_class = make_logger_class(chosen.log.format)
accesslog = "-" if server.access_log else None
access_log_format = '%(h)s "%(m)s %(U)s" %(s)s %(B)s %(M)sms'
# The sign of life is a file touched once a second; a slow disk must not look like a dead worker.
worker_tmp_dir = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None


def on_starting(arbiter: object) -> None:
    """Limits of the process, which its workers inherit."""
    raise_open_files()
    hold_malloc()


def raise_open_files() -> None:
    """A stream takes two descriptors, its caller's and the provider's; the usual soft limit of 1024 is soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def hold_malloc() -> None:
    """Large blocks stay outside the heap: once one was freed, glibc would take the next from it and keep the pages, so
    that each worker would hold the 8 MB of its start for good (mallopt(3)). Other C libraries do not have this."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def post_worker_init(worker: object) -> None:
    """What was loaded stays for good: out of the collector's sight, which then runs less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 100)
