from collections.abc import Iterator

import pytest
from contract.contract_gateway import ContractGateway, open_stage
from sessions.declared_tools import call_declared_tools
from sessions.vendors import VENDORS


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContractGateway]:
    with open_stage(tmp_path_factory.mktemp("sessions"), VENDORS) as opened:
        for fake in opened.fakes.values():
            call_declared_tools(fake)
        yield opened
