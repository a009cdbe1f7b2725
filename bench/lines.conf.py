"""The gateway's own gunicorn settings, and a worker that switches its request line on and off; see bench/lines.py."""

import os
import runpy
from pathlib import Path

globals().update(runpy.run_path(str(Path(__file__).resolve().parent.parent / "gunicorn.conf.py")))
loaded = globals()["post_worker_init"]


def post_worker_init(worker: object) -> None:
    """As ever, then the switch."""
    loaded(worker)
    from bench.lines import install  # after the patching of gevent, which the settings do first

    install(worker.wsgi.services.telemetry.requests, Path(os.environ["BENCH_LINES"]))
