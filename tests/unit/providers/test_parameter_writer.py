import pytest

from gateway.catalogue.entries import Mapping
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.parameters import PARAMETERS, ROWS, Sampling, fields_of
from gateway.neutral.request import Requirements
from gateway.providers import quirks
from gateway.providers.openai import responses
from gateway.providers.parameter_writer import ParameterWriter

MAPPING = Mapping("acme", "m", "m", supported_parameters=("temperature",))


def written(dialect: str, sampling: Sampling, mapping: Mapping | None = None, apart: tuple[str, ...] = ()):
    body: dict = {}
    warnings: list[str] = []
    ParameterWriter(dialect, apart).write(sampling, body, warnings, mapping)
    return body, warnings


def test_each_dialect_writes_its_own_fields():
    sampling = Sampling(max_tokens=9, top_p=0.5, verbosity="low")
    assert written("openai", sampling)[0] == {"max_completion_tokens": 9, "top_p": 0.5, "verbosity": "low"}
    assert written("responses", sampling)[0] == {"max_output_tokens": 9, "top_p": 0.5, "text": {"verbosity": "low"}}
    assert written("google", sampling)[0] == {"maxOutputTokens": 9, "topP": 0.5}


def test_parameters_without_a_field_or_in_no_list_are_reported():
    warning = "verbosity has no counterpart at this provider and was left out."
    assert written("google", Sampling(verbosity="low")) == ({}, [warning])
    unlisted = "top_p is not supported by acme/m and was left out."
    assert written("google", Sampling(temperature=0.0, top_p=1.0), MAPPING) == ({"temperature": 0.0}, [unlisted])


def test_defaults_and_parameters_apart_are_not_written():
    assert written("anthropic", Sampling()) == ({}, [])
    assert written("anthropic", Sampling(frequency_penalty=0.0)) == ({}, [])
    assert written("anthropic", Sampling(verbosity="low"), apart=("verbosity",)) == ({}, [])


@pytest.mark.parametrize("name", sorted({quirk for row in ROWS for quirk in row.quirks}))
def test_a_quirk_of_a_row_removes_its_fields_in_both_formats(name):
    request = ChatRequest("m", Requirements(), lambda: Conversation(()))
    for dialect, known in (("openai", quirks.QUIRKS), ("responses", responses.QUIRKS)):
        body: dict = {}
        ParameterWriter(dialect).write(Sampling(1, 0.5, 0.5, 5, 1.0, 1.0, 2, ("x",), True, "low", "low"), body, [])
        body |= {"service_tier": "flex"}
        removed = {path for path, row in fields_of(dialect).items() if name in row.quirks}
        kept = {path for path in fields_of(dialect) if path not in removed}
        known[name](body, request)
        assert {path for path in fields_of(dialect) if path.partition(".")[0] in body} == kept


def test_every_flag_of_a_capability_is_a_field_of_mappings():
    flags = {row.capability.flag for row in PARAMETERS.values() if row.capability and row.capability.flag}
    assert flags == {"verbosity", "parallel_tool_calls"}
    assert all(getattr(Mapping("p", "m", "m", **{flag: True}), flag) for flag in flags)
    assert not any(getattr(Mapping("p", "m", "m"), flag) for flag in flags)
