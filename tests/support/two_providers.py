"""Writes operator catalogues with two providers of a model, of which `north` is cheaper."""

from pathlib import Path

NAMES = ("north", "south")
# One request in a hundred would explore another provider than the test expects.
STEADY = {"GATEWAY_ROUTING_EXPLORATION_RATE": "0"}
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
    """Return the environment of a gateway with the model `twin` at two addresses; `more` are TOML lines for both
    mappings."""
    (folder / "providers").mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "models" / "twin.toml").write_text(MODEL)
    for name, address, price in zip(NAMES, (north, south), ("0.000001", "0.000002"), strict=True):
        text = PROVIDER.format(name=name, variable=name.upper(), address=address, price=price, more=more)
        (folder / "providers" / f"{name}.toml").write_text(text)
    return STEADY | {"GATEWAY_CATALOGUE_PATH": str(folder), "NORTH_KEYS": "north-key", "SOUTH_KEYS": "south-key"}


def write_line(folder: Path, *addresses: str) -> dict[str, str]:
    """Return the environment of a gateway with `auto` for the models m0, m1 …, each at a separate provider at these
    addresses, the cheapest first."""
    (folder / "providers").mkdir(parents=True)
    (folder / "models").mkdir()
    names = [f"m{number}" for number in range(len(addresses))]
    environment = STEADY | {"GATEWAY_CATALOGUE_PATH": str(folder), "GATEWAY_CATALOGUE_AUTO_MODELS": ",".join(names)}
    for number, (name, address) in enumerate(zip(names, addresses, strict=True)):
        fields = {
            "name": f"at-{name}",
            "variable": f"AT_{name}".upper(),
            "address": address,
            "more": "reasoning = false",
        }
        provider = PROVIDER.format(**fields, price=f"0.00000{number + 1}").replace('"twin"', f'"{name}"')
        (folder / "providers" / f"at-{name}.toml").write_text(provider)
        (folder / "models" / f"{name}.toml").write_text(MODEL.replace("twin", name).replace("Twin", name))
        environment[f"AT_{name.upper()}_KEYS"] = "key"
    return environment
