"""Two providers of one model, `north` the cheaper, written as an operator's catalogue folder for tests."""

from pathlib import Path

NAMES = ("north", "south")
PROVIDER = """name = "{name}"
protocol = "openai"
address = "{address}"
credential = ["{variable}_KEYS"]

[[mappings]]
model = "twin"
external_id = "twin-{name}"
context_length = 100000
max_output = 8000
tools = true
vision = true
json_output = true
{more}
prices = {{ prompt = "{price}", completion = "{price}" }}
"""
MODEL = '[[models]]\nid = "twin"\nname = "Twin"\nfamily = "test"\n'


def write_twins(folder: Path, north: str, south: str, more: str = "reasoning = false") -> dict[str, str]:
    """The environment of a gateway that knows `twin` at these two addresses; `more` TOML lines of both mappings."""
    (folder / "providers").mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "models" / "twin.toml").write_text(MODEL)
    for name, address, price in zip(NAMES, (north, south), ("0.000001", "0.000002"), strict=True):
        text = PROVIDER.format(name=name, variable=name.upper(), address=address, price=price, more=more)
        (folder / "providers" / f"{name}.toml").write_text(text)
    return {"GATEWAY_CATALOGUE_PATH": str(folder), "NORTH_KEYS": "north-key", "SOUTH_KEYS": "south-key"}
