"""gunicorn's configuration: the modules that workers share."""

import subprocess
import sys

import pytest

from tests.support.pages import ROOT

START = """
import logging, runpy, sys, types
configuration = runpy.run_path("gunicorn.conf.py")
configuration["on_starting"](types.SimpleNamespace(log=logging.getLogger("master")))
print("gateway.application.app" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "shared"), [("2", "True"), ("1", "False")])
def test_master_imports_the_application_for_several_workers_only(workers, shared, tmp_path):
    environment = {"WEB_CONCURRENCY": workers, "GATEWAY_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    run = [sys.executable, "-c", START]
    done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [shared]
