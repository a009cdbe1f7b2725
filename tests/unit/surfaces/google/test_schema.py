from gateway.surfaces.google.schema import json_schema_of


def test_a_schema_becomes_json_schema() -> None:
    given = {
        "type": "OBJECT",
        "properties": {
            "any_of": {"type": "STRING", "nullable": True, "enum": ["a"]},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER"}, "max_items": "3"},
            "either": {"any_of": [{"type": "NUMBER"}], "nullable": True},
        },
        "property_ordering": ["list"],
        "required": ["list"],
    }
    assert json_schema_of(given) == {
        "type": "object",
        "properties": {
            "any_of": {"type": ["string", "null"], "enum": ["a", None]},
            "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "either": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
        "required": ["list"],
    }
    assert json_schema_of("odd") == {} == json_schema_of({"type": "TYPE_UNSPECIFIED"})
