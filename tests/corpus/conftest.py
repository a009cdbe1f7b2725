from collections.abc import Iterator

import pytest
from corpus.replay import Replay, open_replay


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    with open_replay(tmp_path_factory.mktemp("corpus")) as opened:
        yield opened
