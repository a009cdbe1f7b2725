import pytest
from support.steps import count_steps

from gateway.catalogue import layers, loader
from gateway.catalogue.loader import CatalogueError, check, load

STEPS = 2500  # interpreter steps for each mapping and its data; 1,550 when this was written

PROVIDER = """
name = "Example AI"
protocol = "openai"
address = "https://api.example.com/v1"
credential = "EXAMPLE_API_KEY"

[[mappings]]
model = "some-model-70b"
external_id = "some-model-70b-0125"
tools = true
prices = { prompt = "0.00000059", completion = "0.00000079" }
checked = 2026-01-15
"""
MODEL = '[[models]]\nid = "some-model-70b"\nname = "Some Model"\n'


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes files to a catalogue folder and returns the folder."""

    def write(files: dict[str, str], name: str = "own"):
        for path, text in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return tmp_path / name

    return write


def problems_of(folder, provider: str = PROVIDER, model: str = MODEL) -> list[str]:
    return check(folder=folder({"providers/example.toml": provider, "models/some.toml": model}))


def test_a_provider_is_one_file(folder):
    own = load(folder=folder({"providers/example.toml": PROVIDER, "models/some.toml": MODEL}))
    model = own.models["some-model-70b"]
    assert model.input_modalities == model.output_modalities == ("text",)
    mapping = model.mappings[0]
    assert (mapping.provider, mapping.external_id, mapping.tools) == ("example", "some-model-70b-0125", True)
    assert mapping.prices[0].base.prompt == 590_000_000
    assert mapping.checked == "2026-01-15"
    assert own.providers["example"].credential == ("EXAMPLE_API_KEY",)
    assert own.providers["example"].version_path == "/v1"


def test_a_search_costs_the_providers_price_if_the_mapping_names_none(folder):
    searching = PROVIDER.replace("tools = true", "web_search = true").replace("[[", 'search_price = "0.01"\n\n[[', 1)
    tiered = searching.replace('00079" }', '00079", tiers = [{ up_to = 9 }, { prompt = "0.1", web_search = "0.02" }] }')
    files = {"providers/example.toml": tiered, "models/some.toml": MODEL}
    (prices,) = load(folder=folder(files)).models["some-model-70b"].mappings[0].prices
    assert prices.base.web_search == 10_000_000_000_000
    assert [tier.rates.web_search for tier in prices.tiers] == [10_000_000_000_000, 20_000_000_000_000]


def test_tools_cost_the_providers_price_where_it_serves_the_responses_api(folder):
    tools = 'tool_prices = { file_search = "0.0025", code_session = "0.03" }\n\n[['
    for able, prices in (("true", (2_500_000_000_000, 30_000_000_000_000)), ("false", (None, None))):
        text = PROVIDER.replace("tools = true", f"responses_api = {able}").replace("[[", tools, 1)
        files = {"providers/example.toml": text, "models/some.toml": MODEL}
        base = load(folder=folder(files)).models["some-model-70b"].mappings[0].prices[0].base
        assert (base.file_search, base.code_session) == prices
    wrong = PROVIDER.replace("[[", 'tool_prices = { web_search = "1" }\n\n[[', 1)
    assert "unknown tool web_search" in problems_of(folder, wrong)[0]


def test_the_shipped_catalogue_has_no_mistake():
    assert check() == []


def test_every_mistake_is_reported_at_once(folder):
    problems = problems_of(
        folder,
        'name = 3\nprotocol = "smoke"\nshape = 1\n[[mappings]]\nmodel = "unknown"\nexternal_id = "x"\n'
        'vision = "yes"\nprices = { prompt = "cheap" }\ndeprecated = "soon"\n',
    )
    text = "\n".join(problems)
    for word in ("name", "unknown protocol", "shape", "no such model", "vision", "not a price", "deprecated"):
        assert word in text
    with pytest.raises(CatalogueError) as raised:
        load(folder=folder({}))
    assert str(raised.value).splitlines() == problems


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"0.00000059"', "0.00000059", "expected text"),
        ("prompt =", "promt =", "unknown price promt"),
        ('completion = "0.00000079"', "tiers = [{}, { up_to = 5 }]", "tiers must rise"),
        ('completion = "0.00000079"', 'peaks = [{ utc = "25:00-26:00" }]', "a peak needs utc"),
        ('completion = "0.00000079"', 'peaks = [{ utc = "01:00-02:00", days = "weekend" }]', "days are such as"),
        ('external_id = "some-model-70b-0125"', "", "external_id is missing"),
        ('name = "Example AI"', "", "name is missing"),
        ('protocol = "openai"', "", "protocol is missing"),
        ("checked = 2026-01-15", 'service_tiers = ["flex"]', "no multiplier for tier flex"),
        ("checked = 2026-01-15", 'operations = ["dance"]', "unknown operation dance"),
        ("api.example.com/v1", "{region}.example.com/v1", "settings does not"),
        ("https://", "ftp://", "not an address"),
        ('model = "some-model-70b"', 'model = "Some Model"', "is not an id"),
    ],
)
def test_a_wrong_field_is_named(folder, old, new, message):
    assert any(message in problem for problem in problems_of(folder, PROVIDER.replace(old, new, 1)))


@pytest.mark.parametrize("field", ["released", "deprecated", "deactivated"])
def test_a_date_of_a_model_is_a_day(folder, field):
    assert f"{field}: " in problems_of(folder, model=f'{MODEL}{field} = "2026-13-01"\n')[0]


def test_a_mapping_or_model_declared_twice_is_a_mistake(folder):
    second = PROVIDER[PROVIDER.index("[[mappings]]") :]
    assert any("defined twice" in problem for problem in problems_of(folder, PROVIDER + second))
    assert any("defined twice" in problem for problem in problems_of(folder, PROVIDER, MODEL + MODEL))


def test_broken_toml_names_its_file(folder):
    assert any(problem.startswith("example.toml:") for problem in problems_of(folder, "name = "))


def test_the_operators_folder_wins_field_by_field(folder):
    own = '[[mappings]]\nmodel = "gpt-4o"\nprices = { prompt = "0.000001" }\n'
    catalogue = load(str(folder({"providers/openai.toml": own})))
    shipped = load()
    changed, before = (
        next(m for m in each.models["gpt-4o"].mappings if m.provider == "openai") for each in (catalogue, shipped)
    )
    assert changed.prices[0].base.prompt == 1_000_000_000 != before.prices[0].base.prompt
    assert (changed.context_length, changed.external_id) == (before.context_length, before.external_id)
    assert catalogue.version != shipped.version


def test_remove_drops_a_mapping(folder):
    own = '[[mappings]]\nmodel = "gpt-4o"\nremove = true\n'
    catalogue = load(str(folder({"providers/openai.toml": own})))
    assert "openai" not in {m.provider for m in catalogue.models["gpt-4o"].mappings}


def test_a_missing_folder_of_the_operator_is_a_mistake():
    assert any("GATEWAY_CATALOGUE_PATH" in problem for problem in check("/no/such/folder"))


def test_a_damaged_snapshot_is_a_mistake_and_not_a_crash(folder):
    own = folder({"snapshot.json.gz": "not gzip"})
    assert any("build it again" in problem for problem in check(folder=own))


def test_aliases_lead_to_models_and_unknown_ones_are_mistakes(folder):
    files = {"providers/example.toml": PROVIDER, "models/some.toml": MODEL}
    good = folder({**files, "aliases.toml": '[alias]\n"some" = "some-model-70b"\n'})
    assert load(folder=good).find("SOME").id == "some-model-70b"
    bad = folder({**files, "aliases.toml": '[alias]\n"some" = "other"\n'})
    assert any("unknown model other" in problem for problem in check(folder=bad))


def test_the_dates_of_a_model_hold_for_its_mappings(folder):
    own = folder({"providers/example.toml": PROVIDER, "models/some.toml": MODEL + "deactivated = 2026-02-01\n"})
    assert load(folder=own).models["some-model-70b"].mappings[0].deactivated == "2026-02-01"


def test_the_sandbox_can_be_left_out():
    catalogue = load(sandbox=False)
    assert "sandbox" not in catalogue.providers
    assert catalogue.find("sandbox-echo") is None


def test_loading_takes_few_steps_a_mapping(monkeypatch):
    mappings = sum(len(model.mappings) for model in load().models.values())
    for module in (layers, loader):
        monkeypatch.setattr(module, "_in_use", {})  # shares nothing with the catalogues of this process
    assert count_steps(load) < STEPS * mappings


def test_a_file_where_nothing_reads_it_is_a_mistake(folder):
    files = {"acme.toml": PROVIDER, "provider/example.toml": PROVIDER, "providers/example.toml": PROVIDER}
    files |= {"models/some.toml": MODEL, "gateway.toml": "", "aliases.toml": ""}
    found = check(folder=folder(files))
    assert [problem.partition(":")[0] for problem in found] == ["acme.toml", "provider/example.toml"]
    assert all("providers/" in problem and "models/" in problem for problem in found)


def test_same_files_are_the_same_catalogue_while_it_is_in_use(folder):
    files = {"providers/example.toml": PROVIDER, "models/some.toml": MODEL}
    first = load(folder=folder(files))
    assert load(folder=folder(files, "copy")) is first
    assert load(folder=folder(files), sandbox=False) is not first
    changed = load(folder=folder(files | {"providers/example.toml": PROVIDER.replace("079", "080")}))
    assert changed.version != first.version
    assert changed.models["some-model-70b"].mappings[0].prices[0].base.completion == 800_000_000


def test_a_folder_with_mistakes_is_read_again(folder):
    files = {"providers/example.toml": PROVIDER + 'nonsense = "1"\n', "models/some.toml": MODEL}
    problems = check(folder=folder(files))
    assert problems and check(folder=folder(files)) == problems
    assert check(folder=folder(files | {"stray.toml": ""}))[0].startswith("stray.toml")


def test_files_that_change_places_are_another_catalogue(folder):
    first = load(folder=folder({"models/some.toml": MODEL, "providers/example.toml": PROVIDER}))
    moved = folder({"models/example.toml": MODEL, "providers/example.toml": PROVIDER}, "moved")
    assert load(folder=moved).version != first.version


def test_a_misspelt_quirk_and_a_model_without_a_protocol_are_mistakes(folder):
    for line, told in (
        ('quirks = ["compatble"]', "unknown quirk 'compatble'; did you mean compatible?"),
        ('protocol = "prediction"', "unknown protocol 'prediction'"),
        ('protocol = ""', "the provider example has no protocol, so the entry needs one"),
    ):
        name = line.partition(" ")[0]
        kept = "\n".join(row for row in PROVIDER.splitlines() if not row.startswith(f"{name} ="))
        assert any(told in problem for problem in problems_of(folder, f"{line}\n{kept}")), line
    mapping = PROVIDER.replace("tools = true", 'tools = true\nquirks = ["no_usr"]')
    assert "unknown quirk 'no_usr'; did you mean no_user?" in problems_of(folder, mapping)[0]
