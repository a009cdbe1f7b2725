from pathlib import Path

import pytest

HERE = "gemini_clients"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names it: it fetches and runs packages."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True
