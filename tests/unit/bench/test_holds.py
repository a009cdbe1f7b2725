import subprocess
import sys

import orjson

from bench import holds
from bench.processes import BenchError

BUSY = """
from gevent import monkey
monkey.patch_all()
import sys, time
from pathlib import Path
import gevent
from bench.hold_recorder import record

def compute():
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass

record(Path(sys.argv[1]))
gevent.sleep(0)
gevent.spawn(compute).join()
gevent.sleep(0)
"""


def test_work_without_a_switch_is_recorded_with_its_place(tmp_path):
    path = tmp_path / "holds"
    subprocess.run([sys.executable, "-c", BUSY, str(path)], check=True, timeout=60)
    worst = max(map(orjson.loads, path.read_bytes().splitlines()), key=lambda row: row["ms"])
    assert worst["ms"] >= 50


def run_with(monkeypatch, ms: float) -> int:
    case = next(holds.cases())
    monkeypatch.setattr(holds, "measure", lambda port, only: [(case, 1.0, [{"ms": ms, "place": "a.py:1 f"}])])
    return holds.main([])


def test_a_hold_of_twenty_milliseconds_fails_the_run(monkeypatch, capsys):
    assert run_with(monkeypatch, 19.9) == 0
    assert run_with(monkeypatch, 20.0) == 1
    assert "a.py:1 f" in capsys.readouterr().out


def test_an_answer_that_is_an_error_fails_the_run(monkeypatch, capsys):
    def refuse(port, only):
        raise BenchError("chat: status 500")

    monkeypatch.setattr(holds, "measure", refuse)
    assert holds.main([]) == 1
    assert "status 500" in capsys.readouterr().err


def test_each_case_names_an_answer_of_the_upstream():
    names = {orjson.dumps(case.body).partition(holds.MARK.encode())[2].partition(b'"')[0] for case in holds.cases()}
    assert {name.decode() for name in names} == {*holds.TEXTS, "vectors", "images", "sound"}
