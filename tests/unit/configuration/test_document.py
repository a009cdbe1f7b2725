"""The example in docs/configuration.md works."""

from pathlib import Path

from gateway.catalogue import loader
from gateway.configuration import settings

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "configuration.md"


def test_the_example_of_the_page_is_a_file_that_works(tmp_path: Path) -> None:
    example = PAGE.read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "gateway.toml").write_text(example)
    (tmp_path / "secrets").mkdir()
    for name in ("encryption_key", "azure_key"):
        (tmp_path / "secrets" / name).write_text("a secret of the example")
    names = ("TEAM_DATABASE_URL", "SCRAPE_TOKEN", "OPENAI_KEY_ONE", "OPENAI_KEY_TWO", "HOUSE_KEY")
    found = settings.load({"GATEWAY_DATA_DIR": str(tmp_path)} | dict.fromkeys(names, "value"))
    catalogue = loader.load_from(loader.sources_of(found))
    assert catalogue.find("house-model") is not None and catalogue.provider("nanogpt") is None
    assert found.server.workers == 4 and found.secret("GATEWAY_ENCRYPTION_KEY") == "a secret of the example"
