import io
import sys
from collections.abc import Callable

import pytest

from gateway import manage


@pytest.fixture(params=["sqlite", "postgresql"])
def run(request, tmp_path, monkeypatch, capsys) -> Callable[..., str]:
    """Run a command on a seeded store of this test's own and return what it printed; the status must be as given."""
    monkeypatch.setenv("DATABASE_URL", request.getfixturevalue(f"{request.param}_url"))
    monkeypatch.setenv("GATEWAY_API_KEY_HASH_SECRET", "hash-secret-of-the-tests")
    monkeypatch.setenv("GATEWAY_ENCRYPTION_KEY", "encryption-key-of-the-tests")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GATEWAY_ENV", "test")

    def run_command(*arguments: str, status: int = 0, typed: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert manage.run(list(arguments)) == status
        shown = capsys.readouterr()
        return (shown.out + shown.err).strip()

    run_command("seed")
    return run_command
