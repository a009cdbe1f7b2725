"""The quirks that catalogue entries may name: small adjustments of a request for one provider.

Implementations are in `providers/quirks.py` and beside it, and in the packages of the formats.
"""

from gateway.neutral.parameters import PARAMETERS

# Those that do more than remove a parameter.
ADJUSTMENTS = frozenset((
    *("adaptive_thinking", "answer_between", "api_version_query", "basic_reasoning_effort", "beta_completions"),
    *("compatible", "content_null_required", "content_text_required", "deployment_path", "details_by_list"),
    *("details_by_show", "developer_as_system", "drop_penalties", "effort_alone", "enable_thinking"),
    *("fim_completions", "inline_media", "known_members", "late_instructions_as_user", "marked_prefix"),
    *("max_tokens_old_name", "no_cache_breakpoints", "no_format_with_tools", "no_max_tool_calls", "no_names"),
    *("no_parallel_tool_calls", "no_reasoning_effort", "no_sampling", "no_stop", "no_stream_options", "no_strict"),
    *("no_usage_in_stream", "no_user", "no_verbosity", "none_or_default_effort", "none_or_high_effort", "one_stop"),
    *("parameters_required", "parsed_reasoning", "plain_media", "plain_tools", "reasoning_as_details"),
    *("reasoning_content_required",),
    *("replay_reasoning", "required_as_any", "sends_prompt_cache", "sends_sensitive_word_check", "short_call_ids"),
    *("split_reasoning", "streamed_tool_arguments", "system_as_user", "template_thinking", "text_as_string"),
    *("think_tags", "thinking_and_effort", "thinking_needs_stream", "thinking_parts", "thinking_switch"),
    *("tool_choice_auto", "vertex_raw_predict"),
))  # fmt: skip


def known_quirks() -> frozenset[str]:
    """Return the name of every quirk."""
    return ADJUSTMENTS.union(*(row.quirks for row in PARAMETERS.values()))
