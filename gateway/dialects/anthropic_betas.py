"""The beta features of Anthropic's models at each kind of host: which names a host knows, and under which name.

A host refuses an unknown value with 400, so only listed ones are sent. Sources: Anthropic documentation, "Beta
headers", "Feature availability by platform"; Vertex AI, "Claude models"; Amazon Bedrock user guide, "Anthropic Claude
Messages API", anthropic_beta.
"""

import re
from collections.abc import Iterable, Mapping

from gateway.neutral.request import is_marked

# Key in `Options.extra` of the caller's beta features (the values of the header anthropic-beta).
BETAS = "anthropic_betas"
LONG_CONTEXT_BETA = "context-1m-2025-08-07"
FAST_BETA = "fast-mode-2026-02-01"
TOOL_SEARCH_BETA = "tool-search-tool-2025-10-19"
FILES_BETA = "files-api-2025-04-14"

# Every host with the format of messages.
COMMON_BETAS = frozenset(
    (
        "interleaved-thinking-2025-05-14",
        "fine-grained-tool-streaming-2025-05-14",
        "token-efficient-tools-2025-02-19",
        "output-128k-2025-02-19",
        LONG_CONTEXT_BETA,
        "context-management-2025-06-27",
    )
)
# The vendor's own service, and Azure.
OWN_BETAS = COMMON_BETAS | frozenset(
    (
        "prompt-caching-2024-07-31",
        "extended-cache-ttl-2025-04-11",
        "pdfs-2024-09-25",
        "model-context-window-exceeded-2025-08-26",
        "output-300k-2026-03-24",
        "structured-outputs-2025-11-13",
        "effort-2025-11-24",
        "advanced-tool-use-2025-11-20",
        "compact-2026-01-12",
        "compact-2026-09-04",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "code-execution-2025-08-25",
        "web-fetch-2025-09-10",
        FILES_BETA,
        "thinking-display-updates-2026-08-18",
        "thinking-binding-controls-2026-08-01",
        "code-execution-2025-05-22",
        "skills-2025-10-02",
        "mcp-client-2025-04-04",
        "mcp-client-2025-11-20",
        "mcp-client-2026-09-15",
        "advisor-tool-2026-03-01",
        "thinking-token-count-2026-05-13",
        "task-budgets-2026-03-13",
        "prompt-caching-scope-2026-01-05",
        "per-turn-control-2026-07-01",
        "mid-conversation-tool-changes-2026-07-01",
        "mid-conversation-output-config-2026-07-01",
        "claude-code-20250219",
        FAST_BETA,
    )
)
VERTEX_BETAS = COMMON_BETAS | frozenset(
    (
        TOOL_SEARCH_BETA,
        "compact-2026-01-12",
        "compact-2026-09-04",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "thinking-display-updates-2026-08-18",
        "thinking-binding-controls-2026-08-01",
        "per-turn-control-2026-07-01",
    )
)
# Other platforms have a narrower feature under its own name.
RENAMED = {"advanced-tool-use-2025-11-20": TOOL_SEARCH_BETA}
# Converse takes a flag only with the models that it is made for; features that the newer ones have without a flag need
# none.
CONVERSE_BETAS: dict[str, re.Pattern[str]] = {
    "interleaved-thinking-2025-05-14": re.compile(r"claude-[a-z]+-4(?:-[0-5](?!\d)|-20|(?!-))"),
    "dev-full-thinking-2025-05-14": re.compile(r"claude-[a-z]+-4(?:-[0-5](?!\d)|-20|(?!-))"),
    LONG_CONTEXT_BETA: re.compile(r"claude-(?:sonnet-4(?:-[0-6](?!\d)|-20|(?!-))|opus-4-6)"),
    "fine-grained-tool-streaming-2025-05-14": re.compile(r"claude-[a-z]+-[4-9]"),
    "thinking-display-updates-2026-08-18": re.compile(r"claude-[a-z]+-[5-9]"),
    "thinking-binding-controls-2026-08-01": re.compile(r"claude-[a-z]+-[5-9]"),
    "output-128k-2025-02-19": re.compile(r"claude-3-7"),
    "token-efficient-tools-2025-02-19": re.compile(r"claude-3-7"),
}


def requested_betas(listed: Iterable[str], models: Iterable[str]) -> list[str]:
    """Return the requested features, each once: those listed, and a long context for a marked model."""
    betas = list(dict.fromkeys(listed))
    if LONG_CONTEXT_BETA not in betas and any(map(is_marked, models)):
        betas.append(LONG_CONTEXT_BETA)
    return betas


def known_betas(betas: Iterable[str], known: frozenset[str]) -> list[str]:
    """Return the features that a host knows, as it names them."""
    named = (name if name in known else RENAMED.get(name, name) for name in betas)
    return [name for name in dict.fromkeys(named) if name in known]


def converse_betas(
    betas: Iterable[str], model: str, known: Mapping[str, re.Pattern[str]] = CONVERSE_BETAS
) -> list[str]:
    """Return the features that Converse takes with a model."""
    return [name for name in betas if name in known and known[name].search(model)]
