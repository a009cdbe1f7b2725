from collections.abc import Callable, Iterator

import pytest
from fakes.engines import LLAMA_CPP, LM_STUDIO, OLLAMA, VLLM, FakeEngine, listed

from gateway.catalogue import loader
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.catalogue.entries import Model
from gateway.configuration.settings import Security, Timeouts
from gateway.providers.model_discovery import Discovery, merge, read_details, read_list
from gateway.routing.resolve import resolve
from gateway.transport import Transport

FILES = loader.load()


@pytest.fixture
def find() -> Iterator[Callable[..., tuple[Discovery, CurrentCatalogue]]]:
    """A discovery with this environment, and the catalogue that it changes."""
    transport = Transport(Timeouts(5, 5, 5, 0.3, 2, 1), Security(False, (), ()))

    def make(**environment: str) -> tuple[Discovery, CurrentCatalogue]:
        current = CurrentCatalogue(FILES)
        return Discovery(transport, current, environment), current

    yield make
    transport.close()


@pytest.fixture
def ollama() -> Iterator[FakeEngine]:
    with FakeEngine(OLLAMA) as engine:
        yield engine


def found(current: CurrentCatalogue, ident: str) -> Model:
    model = current.current().find(ident)
    assert model is not None, ident
    return model


def test_models_of_an_engine_can_be_called_and_are_free(find, ollama):
    discovery, current = find(LLM_OLLAMA_BASE_URL=ollama.url)
    assert discovery.refresh()
    model = found(current, "ollama/qwen3:8b")
    mapping = model.mappings[0]
    assert (mapping.external_id, mapping.context_length, mapping.tools, mapping.reasoning) == (
        "qwen3:8b",
        40960,
        True,
        True,
    )
    assert (mapping.prices[0].base.prompt, mapping.prices[0].base.completion, mapping.vision) == (0, 0, False)
    resolution = resolve("ollama/qwen3:8b", current.current(), "2026-01-01")
    assert resolution.candidates == (mapping,)


def test_capabilities_of_a_model_are_those_that_the_engine_reports(find, ollama):
    discovery, current = find(LLM_OLLAMA_BASE_URL=f"{ollama.url}/v1/")
    discovery.refresh()
    seeing = found(current, "ollama/gemma3:4b")
    assert (seeing.mappings[0].tools, seeing.mappings[0].vision, seeing.input_modalities) == (
        False,
        True,
        ("text", "image"),
    )
    assert found(current, "ollama/nomic-embed-text:latest").mappings[0].operations == ("embeddings",)


def test_a_second_refresh_of_the_same_models_changes_nothing_and_reads_little(find, ollama):
    discovery, current = find(LLM_OLLAMA_BASE_URL=ollama.url)
    discovery.refresh()
    before, asked = current.current(), len(ollama.calls)
    assert not discovery.refresh()
    assert current.current() is before and len(ollama.calls) == asked + 1


def test_model_that_left_is_gone_and_a_new_one_there(find, ollama):
    discovery, current = find(LLM_OLLAMA_BASE_URL=ollama.url)
    discovery.refresh()
    ollama.routes["GET", "/v1/models"] = listed("llama3.2:1b")
    assert discovery.refresh()
    assert current.current().find("ollama/qwen3:8b") is None and found(current, "ollama/llama3.2:1b")


def test_engine_that_is_away_keeps_its_models(find, ollama):
    discovery, current = find(LLM_OLLAMA_BASE_URL=ollama.url)
    discovery.refresh()
    ollama.away = True
    assert not discovery.refresh()
    assert found(current, "ollama/qwen3:8b")


def test_one_engine_away_hides_no_other(find, ollama, caplog):
    discovery, current = find(LLM_OLLAMA_BASE_URL=ollama.url, LLM_VLLM_BASE_URL="http://127.0.0.1:9")
    assert discovery.refresh() and found(current, "ollama/qwen3:8b")
    discovery.refresh()
    assert sum("vLLM does not list" in record.message for record in caplog.records) == 1


def test_reload_of_the_files_is_followed(find, ollama):
    discovery, current = find(LLM_OLLAMA_BASE_URL=ollama.url)
    discovery.refresh()
    again = Catalogue(FILES.models.values(), FILES.providers.values(), FILES.aliases, "reloaded")
    current.swap(again)
    assert discovery.refresh()
    assert current.current().version.startswith("reloaded+") and found(current, "ollama/qwen3:8b")


def test_key_of_an_engine_travels_with_the_question(find, ollama):
    find(LLM_OLLAMA_BASE_URL=ollama.url, LLM_OLLAMA_API_KEY="k1,k2")[0].refresh()
    assert all(headers["authorization"] == "Bearer k1" for _, _, headers in ollama.calls)


def test_no_call_is_made_without_a_base_url(find):
    discovery, current = find()
    assert discovery.engines() == [] and not discovery.refresh()
    assert current.current() is FILES


@pytest.mark.parametrize(
    ("variable", "routes", "ident", "expected"),
    [
        ("LLM_VLLM_BASE_URL", VLLM, "vllm/Qwen/Qwen3-8B", (32768, True, True)),
        ("LLM_VLLM_BASE_URL", VLLM, "vllm/qwen/qwen3-8b", (32768, True, True)),
        ("LLM_LLAMA_CPP_BASE_URL", LLAMA_CPP, "llama-cpp/gemma.gguf", (8192, True, True)),
        ("LLM_LM_STUDIO_BASE_URL", LM_STUDIO, "lm-studio/qwen-vl", (32768, True, True)),
        ("LLM_LM_STUDIO_BASE_URL", LM_STUDIO, "lm-studio/plain", (4096, False, False)),
    ],
)
def test_every_engine_is_read_in_its_own_words(find, variable, routes, ident, expected):
    with FakeEngine(routes) as engine:
        discovery, current = find(**{variable: engine.url})
        discovery.refresh()
    mapping = found(current, ident).mappings[0]
    assert (mapping.context_length, mapping.tools, mapping.vision) == expected


def test_engine_without_the_fuller_list_is_read_by_its_plain_one(find):
    routes = {key: body for key, body in LM_STUDIO.items() if key[1] == "/v1/models"}
    with FakeEngine(routes) as engine:
        discovery, current = find(LLM_LM_STUDIO_BASE_URL=engine.url)
        discovery.refresh()
    assert found(current, "lm-studio/plain").mappings[0].tools


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 1}'])
def test_answers_of_another_shape_change_nothing(find, body):
    with FakeEngine({("GET", "/v1/models"): body}) as engine:
        discovery, current = find(LLM_VLLM_BASE_URL=engine.url)
        assert not discovery.refresh()
    assert current.current() is FILES


def test_odd_entries_are_passed_over():
    served = read_list({"data": [{"id": "a"}, {"id": "a"}, {"id": ""}, {"id": 5}, 7, {"id": "x" * 300}, {"id": "b\n"}]})
    assert [one.name for one in served] == ["a"]
    assert read_details(served[0], [1]) == served[0]


def test_models_of_the_files_win_over_found_ones():
    known = next(iter(FILES.models.values()))
    assert merge(FILES, [Model(known.id)]) is FILES


def test_the_version_depends_on_the_findings_and_not_on_their_order():
    one, other = Model("ollama/a"), Model("ollama/b")
    assert merge(FILES, [one, other]).version == merge(FILES, [other, one]).version != merge(FILES, [one]).version
