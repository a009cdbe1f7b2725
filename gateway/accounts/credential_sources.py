"""The sources of a provider's credential: the gateway's environment, or a key that an organization stored."""

from typing import Literal

CredentialSource = Literal["platform", "byok"]
PLATFORM_SOURCE: CredentialSource = "platform"
OWN_SOURCE: CredentialSource = "byok"
