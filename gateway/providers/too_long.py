"""Recognizes a provider's error for a prompt that exceeds the model's context.

Agents compact the conversation when they see the code for it, so every provider's error gets the same code. Sources of
the messages: the error pages of the providers' documentation, and the servers' own source (vLLM, SGLang, TGI,
llama.cpp, Ollama, TensorRT-LLM).
"""

import re

TOO_LONG = "context_length_exceeded"
CODES = frozenset(
    (
        TOO_LONG,
        "context_window_exceeded",
        "model_context_window_exceeded",
        "prompt_too_long",
        "tokens_too_long",
        "input_too_long",
        "token_limit_exceeded",
        "exceed_context_size_error",
        "1261",  # Z.ai
        "336103",  # Baidu
    )
)
WORDS = re.compile(
    r"prompt(?: is)? too long|maximum (?:context|prompt|input) length|context[ _](?:length|window)[ _]exceeded"
    r"|context window|input is too long|input token count.{0,40}exceeds|reduce the length of the messages"
    r"|greater than the context length|exceeds? the (?:maximum |model's )?context length|exceeded model token limit"
    r"|exceeds the available context size|loaded with context length of only|exceeds the configured context size"
    r"|longer than the (?:maximum model length|model's context length)|prompt exceeds max length"
    r"|range of input length should be|`?inputs`? tokens \+ `?max_new_tokens`? must be"
    r"|`?inputs`? must have less than \d+ tokens|max_prompt_tokens|max input (?:characters|tokens|length)"
    r"|input tokens exceed|too many tokens: |exceed max message tokens|max size: \d+ tokens"
    r"|\b(?:input|prompt)(?: text| messages?)?(?: tokens?)?(?: length| count| size)? ?(?:\([^)]{0,40}\) ?)?"
    r"(?:is |are |has |have )?(?:too long|exceed)"
    r"|(?:输入|上下文|prompt|tokens?).{0,12}(?:超长|过长|超过|超出)",
    re.IGNORECASE | re.DOTALL,
)


def is_too_long(code: str, message: str) -> bool:
    """Whether an error with this code and message means that the prompt exceeds the model's context."""
    return code.lower() in CODES or bool(WORDS.search(message))
