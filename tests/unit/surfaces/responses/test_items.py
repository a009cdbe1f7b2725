"""Items and tools that only servers of the dialect have: they are kept whole for those."""

import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.responses.items import read_item, read_tool, write_item
from gateway.surfaces.responses.schema import WebSearchTool


@pytest.mark.parametrize(
    "kind",
    [
        *("web_search_call", "local_shell_call", "shell_call", "shell_call_output", "apply_patch_call"),
        *("apply_patch_call_output", "tool_search_call", "tool_search_output", "additional_tools"),
        *("configuration_update", "compaction_trigger"),
    ],
)
def test_an_item_that_nothing_refers_to_is_kept_without_its_id(kind: str) -> None:
    item = {"type": kind, "status": "completed", "call_id": "c"}
    assert write_item(read_item({**item, "id": "x_1"}, "input.0")) == item


@pytest.mark.parametrize(
    "kind",
    [
        *("image_generation_call", "local_shell_call_output", "computer_call", "computer_call_output"),
        *("code_interpreter_call", "file_search_call", "mcp_list_tools", "mcp_approval_request"),
        *("mcp_approval_response", "mcp_call", "program", "program_output"),
    ],
)
def test_an_item_that_its_server_knows_is_kept_with_its_id(kind: str) -> None:
    item = {"type": kind, "id": "x_1", "status": "completed"}
    assert write_item(read_item(item, "input.0")) == item


@pytest.mark.parametrize(
    "kind",
    [
        *("code_interpreter", "file_search", "computer", "computer_use", "computer_use_preview", "mcp"),
        *("programmatic_tool_calling", "image_generation", "local_shell", "shell", "apply_patch", "tool_search"),
    ],
)
def test_a_tool_of_a_server_is_kept_whole(kind: str) -> None:
    assert write_item(read_tool({"type": kind, "setting": 1}, "tools.0")) == {"type": kind, "setting": 1}


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
)
def test_every_version_of_the_web_search_is_the_web_search(kind: str) -> None:
    tool = read_tool({"type": kind, "search_context_size": "low"}, "tools.0")
    assert isinstance(tool, WebSearchTool) and tool.search_context_size == "low"


def test_an_item_and_a_tool_of_a_newer_type_are_kept_whole() -> None:
    for read in (read_item, read_tool):
        assert write_item(read({"type": "guess", "id": "x"}, "place.0")) == {"type": "guess", "id": "x"}


def test_an_item_and_a_tool_without_a_type_are_refused_by_place() -> None:
    for read in (read_item, read_tool):
        for kind in ({}, {"type": ""}, {"type": 7}):
            with pytest.raises(InvalidRequest) as caught:
                read(kind, "place.0")
            assert caught.value.param == "place.0.type"
