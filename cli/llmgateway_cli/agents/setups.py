"""Changes of an agent's settings file before `launch` starts it, for agents that need more than an environment."""

from collections.abc import Mapping

from llmgateway_cli.agents.definitions import CRUSH_SETUP, GEMINI_SETUP, PROVIDER, Agent, LaunchPlan
from llmgateway_cli.agents.settings_files import crush_file, crush_settings, gemini_file, gemini_settings


def describe_setup(agent: Agent, environment: Mapping[str, str]) -> str:
    """Return the change that the agent's settings file would get, "" for none."""
    if agent.setup == CRUSH_SETUP:
        return f"add the provider {PROVIDER} to {crush_file(environment).path}"
    if agent.setup == GEMINI_SETUP:
        return f"choose the sign-in by key in {gemini_file(environment).path}"
    return ""


def apply_setup(agent: Agent, plan: LaunchPlan, is_model_chosen: bool) -> bool:
    """Change the agent's settings file if it needs that, and return whether it was changed."""
    if agent.setup == CRUSH_SETUP:
        file = crush_file(plan.inherited)
        return file.merge(crush_settings(plan, is_model_chosen, file.read().value))
    if agent.setup == GEMINI_SETUP:
        file = gemini_file(plan.inherited)
        return file.merge(gemini_settings(file.read().value))
    return False
