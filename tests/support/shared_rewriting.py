"""Test modules that several processes of pytest make ready together.

pytest rewrites the assertions of each test module before it is imported, and keeps what it made of it in a file. On a
fresh checkout every process would rewrite all modules at the same time: five seconds of each.
"""

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).resolve().parents[1]


def rewrite_share(config: pytest.Config, number: int, processes: int) -> None:
    """Rewrite the share of the process with this number: the others find it done."""
    state = config.stash[rewrite.assertstate_key]
    for path in sorted(TESTS.rglob("test_*.py"))[number::processes]:
        folder = rewrite.get_cache_dir(path)
        made = folder / f"{path.stem}{rewrite.PYC_TAIL}"
        if sys.dont_write_bytecode or not rewrite.try_makedirs(folder) or rewrite._read_pyc(path, made):
            continue
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, source_hash, made)
