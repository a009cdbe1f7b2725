import pytest
from support.commands import SECRETS, Run, command_runner


@pytest.fixture(params=["sqlite", "postgresql"])
def run(request, tmp_path, monkeypatch, capsys) -> Run:
    """Run a command on a seeded store of this test's own and return what it printed; the status must be as given."""
    url = request.getfixturevalue(f"{request.param}_url")
    run = command_runner(monkeypatch, capsys, tmp_path, notes=True, DATABASE_URL=url, **SECRETS)
    run("seed")
    return run
