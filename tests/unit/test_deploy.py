"""The files for operators are right where the tool that reads them is there to say so."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_the_example(tmp_path: Path) -> None:
    command = ["nginx", "-t", "-c", str(ROOT / "deploy" / "nginx.conf"), "-g", f"pid {tmp_path}/nginx.pid;"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def test_the_example_keeps_streams_flowing_and_bodies_as_large_as_the_gateways() -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    assert "proxy_buffering off;" in text
    assert "client_max_body_size 128m;" in text
    assert "max_form_mb = 128 " in (ROOT / "config" / "default.toml").read_text()
