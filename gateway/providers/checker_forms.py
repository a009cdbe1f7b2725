"""Every form of outside checkers, by the name that rules use."""

from collections.abc import Mapping

from gateway.providers import checker_webhook
from gateway.providers.azure import content_safety
from gateway.providers.bedrock import applied_guardrails
from gateway.providers.checker_calls import FormCalls
from gateway.providers.lakera import lakera_guard
from gateway.providers.presidio import analyzer

FORMS: Mapping[str, FormCalls] = {
    "webhook": checker_webhook.calls,
    "presidio": analyzer.calls,
    "azure_content_safety": content_safety.calls,
    "bedrock_guardrail": applied_guardrails.calls,
    "lakera_guard": lakera_guard.calls,
}
