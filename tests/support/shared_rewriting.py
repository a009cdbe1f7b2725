"""Test modules that are made ready while others are collected.

pytest rewrites the assertions of each test module before it is imported, and keeps what it made of it in a file. On a
fresh checkout that takes a process ten seconds, while another processor idles.
"""

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from gevent.monkey import get_original

TESTS = Path(__file__).resolve().parents[1]
fork = get_original("os", "fork")


def rewrite_from_the_end(config: pytest.Config) -> int:
    """In a process of its own, whose id this is: the last modules first, until it meets those that were collected."""
    process: int = fork()
    if process == 0:
        try:
            rewrite_modules(config, sorted(TESTS.rglob("test_*.py"), reverse=True))
        finally:
            os._exit(0)
    return process


def rewrite_modules(config: pytest.Config, paths: list[Path]) -> None:
    """As importing them would; those that were rewritten already stay."""
    state = config.stash[rewrite.assertstate_key]
    for path in paths:
        folder = rewrite.get_cache_dir(path)
        made = folder / f"{path.stem}{rewrite.PYC_TAIL}"
        if sys.dont_write_bytecode or not rewrite.try_makedirs(folder) or rewrite._read_pyc(path, made):
            continue
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, source_hash, made)
