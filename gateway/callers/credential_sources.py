"""The sources of a provider's credential: the gateway's environment, or a key that an organization stored."""

from typing import Literal

from gateway.configuration.settings import ProjectMode

# The modes of projects: which provider keys their requests use.

CREDITS: ProjectMode = "credits"
API_KEYS: ProjectMode = "api-keys"
HYBRID: ProjectMode = "hybrid"
# Mode → its description.
PROJECT_MODES: dict[str, str] = {
    CREDITS: "The gateway's keys, paid with credits",
    API_KEYS: "Own keys only",
    HYBRID: "Own keys first, then the gateway's",
}


CredentialSource = Literal["platform", "byok"]
PLATFORM_SOURCE: CredentialSource = "platform"
OWN_SOURCE: CredentialSource = "byok"
