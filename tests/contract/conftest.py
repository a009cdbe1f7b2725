from collections.abc import Iterator

import pytest
from contract.contract_gateway import ContractGateway, open_stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContractGateway]:
    with open_stage(tmp_path_factory.mktemp("contract")) as opened:
        yield opened
