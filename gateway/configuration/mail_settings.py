"""The settings of e-mail."""

from dataclasses import dataclass
from typing import Annotated, Literal

from gateway.configuration.value_parsing import NumberRange

MAIL_PASSWORD = "GATEWAY_MAIL_PASSWORD"  # the secret of `username`


@dataclass(frozen=True, slots=True)
class MailSettings:
    """Settings of the SMTP server. `host` "": no e-mail is sent."""

    host: str
    port: Annotated[int, NumberRange(1, 65535)]
    security: Literal["starttls", "tls", "none"]
    username: str
    sender: str
    ca_file: str
