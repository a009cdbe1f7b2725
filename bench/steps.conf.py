"""The gateway's own gunicorn settings, and a worker that traces one request; see bench/steps.py."""

import os
import runpy
from pathlib import Path

globals().update(runpy.run_path(str(Path(__file__).resolve().parent.parent / "gunicorn.conf.py")))
loaded = globals()["post_worker_init"]


def post_worker_init(worker: object) -> None:
    """As ever, then the tracer."""
    loaded(worker)
    # After the patching of gevent, which the settings do first.
    from bench.tracing import WARM_REQUESTS, ModuleCounter, Tracer, install

    install(
        Path(os.environ["BENCH_STEPS"]),
        float(os.environ.get("BENCH_STEPS_APART_S", "0")),
        ModuleCounter if "BENCH_STEPS_MODULES" in os.environ else Tracer,
        int(os.environ.get("BENCH_STEPS_WARM", WARM_REQUESTS)),
    )
