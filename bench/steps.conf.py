"""The gateway's own gunicorn settings, and a worker that traces one request; see bench/steps.py."""

import os
import runpy
from pathlib import Path

globals().update(runpy.run_path(str(Path(__file__).resolve().parent.parent / "gunicorn.conf.py")))
loaded = globals()["post_worker_init"]


def post_worker_init(worker: object) -> None:
    """As ever, then the tracer."""
    loaded(worker)
    from bench.tracing import install  # after the patching of gevent, which the settings do first

    install(Path(os.environ["BENCH_STEPS"]), float(os.environ.get("BENCH_STEPS_APART_S", "0")))
