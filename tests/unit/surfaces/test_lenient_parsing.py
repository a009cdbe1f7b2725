"""Bodies in another spelling than the documented one."""

import orjson

from gateway.surfaces.lenient_parsing import correct_numbers, read_choice


def test_whole_numbers_are_corrected_outside_of_schemas_and_content() -> None:
    schema = {"schema": {"type": "number", "minimum": 1.0}}
    kept = {
        "response_format": {"type": "json_schema", "json_schema": schema},
        "text": {"format": {"type": "json_schema", **schema}},
        "output_config": {"format": {"type": "json_schema", **schema}},
        "messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"x": 2.0}]}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "temperature": 0.5,
    }
    expected = orjson.dumps({**kept, "max_tokens": 100, "reasoning": {"max_tokens": 50}})
    wire = {**kept, "max_tokens": 100.0, "reasoning": {"max_tokens": 50.0}}
    correct_numbers(wire)
    assert orjson.dumps(wire) == expected


def test_each_mode_of_a_tool_choice_is_understood_in_any_case_and_wrapped() -> None:
    modes = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
    for given, mode in modes.items():
        for spelling in (given, given.upper(), {"type": given}, {"type": given.title()}):
            assert read_choice(spelling, lambda kind, choice: choice) == mode, spelling
    assert read_choice("fast", lambda kind, choice: choice) == "fast"
