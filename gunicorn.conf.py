"""gunicorn's configuration; all settings that an operator may change come from config/ and the environment."""

# Must run before any other import: modules imported earlier would keep blocking sockets and real thread locals.
from gateway.runtime.process import patch_all

patch_all()

import ctypes  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

from gateway.build_stamp import full_version  # noqa: E402
from gateway.configuration import settings  # noqa: E402
from gateway.worker import accepted_configuration  # noqa: E402

OPEN_FILES = 65_536
M_MMAP_THRESHOLD, MAPPED_BYTES = -3, 1 << 20  # <malloc.h>
M_ARENA_MAX = -8
SHARED_MEMORY = "/dev/shm"

try:
    chosen = (accepted_configuration.current() or accepted_configuration.begin()).settings
except settings.SettingsError as error:
    # One line for each mistake and no traceback, which gunicorn would print for any other exception.
    sys.exit("\n".join(f"error: {line}" for line in str(error).splitlines()))
server = chosen.server
if chosen.database.scheme == "sqlite":
    # peewee imports every driver that it finds, and psycopg takes 11 MB in each worker. None makes the import fail.
    sys.modules["psycopg"] = None

from gateway.server.logging_setup import logger_class as make_logger_class  # noqa: E402, because it imports peewee

bind = f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"
workers = max(1, server.workers)
worker_class = "gateway.server.worker.GatewayWorker"
worker_connections = 10_000
backlog = 2048

# The worker uses the grace period up to its last two seconds; a supervisor must wait longer before it kills gunicorn.
graceful_timeout = max(1, round(server.graceful_timeout_s))
keepalive = round(server.keepalive_s)
# Detects a blocked event loop only: requests have their own deadlines.
timeout = 60
max_requests = 0
# Each worker makes its application after the fork, so that no connection, lock or thread is shared.
preload_app = False

# The control socket is in the home folder, where a second instance would take it over.
control_socket_disable = True
# Proxies that are trusted to set X-Forwarded-Proto; for a proxy on another host set GATEWAY_SERVER_PUBLIC_URL instead.
forwarded_allow_ips = ",".join(server.trusted_proxies)
proc_name = "llmgateway"
errorlog = "-"
logger_class = make_logger_class(chosen.log.format)
accesslog = "-" if server.access_log else None
access_log_format = '%(h)s "%(m)s %(U)s" %(s)s %(B)s %(M)sms'
# Workers touch their heartbeat file once a second. It is in memory because a slow disk must not make a worker look
# dead.
worker_tmp_dir = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None


def on_starting(arbiter: Any) -> None:
    """Log the build, set the process limits, import what workers share, and exclude it from garbage collection."""
    arbiter.log.info("llmgateway %s", full_version())
    raise_open_files()
    hold_malloc()
    if workers > 1:
        share_modules()
    # A collection in the worker would write to every page that it shares with the master: 2 MB of one worker.
    gc.collect()
    gc.freeze()


def raise_open_files() -> None:
    """Raise the soft limit on open files: each stream takes two descriptors and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < new_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def hold_malloc() -> None:
    """Keep large blocks outside the heap, so that they return to the system when freed, and one heap for all threads.

    Otherwise glibc raises its mmap threshold after the first large free and each worker keeps the 8 MB of its start
    (mallopt(3)), and each native thread keeps the most that its work ever took, such as 10 MB for a step of the
    rollups. Other C libraries do not have this call.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(M_ARENA_MAX, 1)


def share_modules() -> None:
    """Import the application's modules and compile its routes before the workers are forked, so that they share memory.

    A further worker has 31 instead of 57 MB of private memory. A single worker would only add the master's copy, 10 MB.
    """
    importlib.import_module("gateway.application.starting")
    importlib.import_module("gateway.application.flask_application").prepare(())


def post_worker_init(worker: object) -> None:
    """Exclude all loaded objects from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    # Two young collections before one of the middle generation keep that one below 5 ms, in which no other thread runs;
    # after five, decoded bodies made it take up to 20 ms, and the p99 of small requests during a flood of uploads was
    # 69 and 84 ms instead of 51 and 49.
    gc.set_threshold(20_000, 2, 250)
