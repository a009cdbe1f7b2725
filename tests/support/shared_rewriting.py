"""Rewrites the assertions of test modules in a second process during the collection.

pytest rewrites the assertions of each test module before its import and caches the result in a file. On a fresh
checkout this takes a process ten seconds, while another processor is idle.
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
    """Fork a process that rewrites the last modules first, until it reaches the collected modules. Return its id."""
    process: int = fork()
    if process == 0:
        try:
            rewrite_modules(config, sorted(TESTS.rglob("test_*.py"), reverse=True))
        finally:
            os._exit(0)
    return process


def rewrite_modules(config: pytest.Config, paths: list[Path]) -> None:
    """Rewrite modules as an import would; cached results are kept."""
    state = config.stash[rewrite.assertstate_key]
    for path in paths:
        folder = rewrite.get_cache_dir(path)
        compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
        if sys.dont_write_bytecode or not rewrite.try_makedirs(folder) or rewrite._read_pyc(path, compiled):
            continue
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, source_hash, compiled)
