import json
import subprocess

import pytest

from bench import peers
from bench.processes import BenchError
from bench.targets import Target, add_headers, write_request


def refuse(command, **_):
    return subprocess.CompletedProcess(command, 1, "", "first line\nno such version\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    return tmp_path


def test_a_peer_that_no_registry_has_is_left_out_with_the_reason(folder, monkeypatch):
    monkeypatch.setattr(peers.subprocess, "run", refuse)
    assert peers.install_available(["portkey", "gateway"]) == {"portkey": "no such version"}
    with pytest.raises(BenchError):
        peers.install("litellm")


def test_a_peer_with_its_pins_is_not_installed_again(folder, monkeypatch):
    monkeypatch.setattr(peers.subprocess, "run", refuse)
    (folder / "portkey").mkdir()
    (folder / "portkey" / "pins.json").write_text(json.dumps(peers.list_pins("portkey")))
    assert peers.install_available(["portkey"]) == {}
    monkeypatch.setitem(peers.NODE_OVERRIDES, "portkey", {"hono": "9.9.9"})
    assert peers.install_available(["portkey"]) == {"portkey": "no such version"}


def test_headers_of_a_target_are_part_of_its_requests():
    target = Target("peer", 1, None, headers="x-a: b\r\n")
    plain = write_request(1, "", False)
    assert add_headers(plain, target).split(b"\r\n")[1] == b"x-a: b"
    assert add_headers(plain, Target("gateway", 1, None)) == plain
