"""The gateway's own gunicorn settings, and a worker that records what holds its event loop; see bench/holds.py."""

import os
import runpy
from pathlib import Path

globals().update(runpy.run_path(str(Path(__file__).resolve().parent.parent / "gunicorn.conf.py")))
loaded = globals()["post_worker_init"]


def post_worker_init(worker: object) -> None:
    """As ever, then the recorder."""
    loaded(worker)
    from bench.hold_recorder import record  # after the patching of gevent, which the settings do first

    record(Path(os.environ["BENCH_HOLDS"]))
