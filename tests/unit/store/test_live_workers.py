"""Whether a worker has ended is known from the locks of its files, at once and never wrongly."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys

import pytest

from gateway.store import live_workers
from gateway.store.intents import Intents, orphans
from gateway.store.live_workers import LiveWorkers

CHILD = """
import pathlib, sys, time
from gateway.store.intents import Intents
print(Intents(pathlib.Path(sys.argv[1]), "node").owner, flush=True)
time.sleep(60)
"""


def test_a_killed_worker_is_dead_before_and_after_its_recovery(tmp_path):
    own = Intents(tmp_path, "node")
    workers = LiveWorkers(tmp_path, own.owner)
    child = subprocess.Popen([sys.executable, "-c", CHILD, tmp_path], stdout=subprocess.PIPE, text=True)
    name = LiveWorkers(tmp_path, child.stdout.readline().strip()).name
    assert not workers.is_dead(name)
    child.send_signal(signal.SIGSTOP)  # it may continue
    assert not workers.is_dead(name)
    child.kill()
    child.communicate()
    assert workers.is_dead(name)
    for orphan in orphans(tmp_path):
        orphan.discard()
    assert workers.is_dead(name)
    own.close()


def test_a_worker_that_lives_is_not_dead(tmp_path):
    own, other = Intents(tmp_path, "node"), Intents(tmp_path, "node", segment_bytes=200)
    workers = LiveWorkers(tmp_path, own.owner)
    name = LiveWorkers(tmp_path, other.owner).name
    for number in range(20):  # it continues in new files
        request = bytes([number]) * 16
        other.begin(request, 0, b"x" * 50)
        other.end(request, 0)
        assert not workers.is_dead(name) and not workers.is_dead(workers.name)


def test_workers_of_other_nodes_and_unknown_ones_are_not_known_to_be_dead(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    own, foreign = Intents(here, "node"), Intents(there, "node")
    workers = LiveWorkers(here, own.owner)
    name = LiveWorkers(there, foreign.owner).name
    foreign.close()
    assert not workers.is_dead(name) and not workers.is_dead("") and not workers.is_dead("x")


def test_a_copied_folder_and_another_machine_are_other_nodes(tmp_path, monkeypatch):
    """Otherwise workers of two nodes that began as copies would take each other's work for ever."""
    own = Intents(tmp_path / "a", "node")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    names = {LiveWorkers(tmp_path / one, own.owner).name for one in "aab"}
    boot = tmp_path / "boot_id"
    boot.write_text("another start of the machine")
    monkeypatch.setattr(live_workers, "BOOT_ID", boot)
    assert len(names | {LiveWorkers(tmp_path / "a", own.owner).name}) == 3


def test_nothing_is_known_where_the_system_does_not_name_its_start(tmp_path, monkeypatch):
    monkeypatch.setattr(live_workers, "BOOT_ID", tmp_path / "none")
    own, other = Intents(tmp_path, "node"), Intents(tmp_path, "node")
    name = LiveWorkers(tmp_path, other.owner).name
    other.close()
    assert not LiveWorkers(tmp_path, own.owner).is_dead(name)


def test_a_worker_that_begins_a_new_file_during_the_look_is_not_dead(tmp_path, monkeypatch):
    """The file that was listed does not exist any more when the look opens it."""
    own, other = Intents(tmp_path, "node"), Intents(tmp_path, "node", segment_bytes=200)
    workers = LiveWorkers(tmp_path, own.owner)
    name = LiveWorkers(tmp_path, other.owner).name
    really_open = os.open

    def open_late(path, *more):
        if other.owner in str(path) and not str(path).endswith(".new"):
            before = set(tmp_path.glob(f"{other.owner}-*.log"))
            number = 0
            while before & set(tmp_path.glob(f"{other.owner}-*.log")):
                request = number.to_bytes(16, "big")
                other.begin(request, 0, b"x" * 50)
                other.end(request, 0)
                number += 1
        return really_open(path, *more)

    monkeypatch.setattr(os, "open", open_late)
    assert not workers.is_dead(name)


def test_an_emptied_or_replaced_folder_shows_nothing(tmp_path):
    """The files of workers that are alive were deleted, or another folder was mounted over them."""
    folder = tmp_path / "intents"
    own, other = Intents(folder, "node"), Intents(folder, "node")
    workers = LiveWorkers(folder, own.owner)
    name = LiveWorkers(folder, other.owner).name
    for path in folder.glob("*.log"):
        path.unlink()
    assert not workers.is_dead(name)
    shutil.rmtree(folder)
    assert not workers.is_dead(name)


@pytest.mark.parametrize("problem", [errno.ENOLCK, errno.EOPNOTSUPP, 0])
def test_a_file_system_without_locks_shows_nothing(tmp_path, monkeypatch, problem):
    """Network file systems refuse locks, or grant the same one to everybody."""
    own, other = Intents(tmp_path, "node"), Intents(tmp_path, "node")
    workers = LiveWorkers(tmp_path, own.owner)
    name = LiveWorkers(tmp_path, other.owner).name

    def lock(handle, operation):
        if problem:
            raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(fcntl, "flock", lock)
    assert not workers.is_dead(name)
