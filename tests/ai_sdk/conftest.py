from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ai_sdk.clients import CACHE, MAJORS, Sdk, install
from ai_sdk.scene import Scene
from contract.contract_gateway import write_catalogue
from contract.vendors import VENDORS
from support.gateways import GatewayProcess

HERE = "ai_sdk"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names it: it fetches and runs packages."""
    return None if any(HERE in Path(arg.split("::")[0]).parts for arg in config.args) else True


def add_common_model(catalogue: Path) -> Path:
    """Add a model of two providers, of which Anthropic's is the cheaper one."""
    for name, price in (("openai", "0.000004"), ("anthropic", "0.000002")):
        mapping = f'[[mappings]]\nmodel = "common"\nexternal_id = "{VENDORS[name].model}"\ncontext_length = 200000\n'
        with (catalogue / "providers" / f"fake-{name}.toml").open("a") as file:
            file.write(f'{mapping}max_output = 32000\nprices = {{ prompt = "{price}", completion = "{price}" }}\n')
    (catalogue / "models" / "common.toml").write_text('[[models]]\nid = "common"\n')
    return catalogue


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A gateway under gunicorn, as a user runs it, before all vendors' fakes, and each major of the SDK."""
    node, folder = install(CACHE), tmp_path_factory.mktemp("ai-sdk")
    with ExitStack() as running:
        fakes: dict[str, Any] = {name: running.enter_context(vendor.fake()) for name, vendor in VENDORS.items()}
        environment = {f"LLM_FAKE_{name.upper()}_BASE_URL": fake.url for name, fake in fakes.items()}
        environment |= {f"LLM_FAKE_{name.upper()}_API_KEY": vendor.key for name, vendor in VENDORS.items()}
        environment["GATEWAY_CATALOGUE_PATH"] = str(add_common_model(write_catalogue(folder / "catalogue")))
        environment["GATEWAY_BOOTSTRAP_CREDITS_USD"] = "100"
        gateway = GatewayProcess(folder / "data", **environment)
        running.callback(gateway.stop)
        gateway.start()
        sdks = {major: Sdk.start(node, CACHE, major, gateway.address, gateway.key) for major in MAJORS}
        for sdk in sdks.values():
            running.callback(sdk.stop)
        yield Scene(gateway, fakes, sdks)
