"""The modes of projects: which provider keys their requests use."""

from gateway.configuration.settings import ProjectMode

CREDITS: ProjectMode = "credits"
API_KEYS: ProjectMode = "api-keys"
HYBRID: ProjectMode = "hybrid"
# Mode → its description.
PROJECT_MODES: dict[str, str] = {
    CREDITS: "The gateway's keys, paid with credits",
    API_KEYS: "Own keys only",
    HYBRID: "Own keys first, then the gateway's",
}
