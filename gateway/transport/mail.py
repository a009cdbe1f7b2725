"""E-mail by SMTP: one message per connection, encrypted, with a verified certificate."""

import ssl
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING, NamedTuple

from gateway.configuration.outgoing_settings import MailSettings
from gateway.runtime.lazy_import import LazyImport

if TYPE_CHECKING:
    import smtplib
    from email import headerregistry, policy
else:
    # Loaded with the first message: 0.8 MB.
    headerregistry = LazyImport("email.headerregistry")
    policy = LazyImport("email.policy")
    smtplib = LazyImport("smtplib")

TIMEOUT_S = 15.0
MAX_SUBJECT_LENGTH = 200
MAX_LINE_LENGTH = 998  # RFC 5322, 2.1.1


class Mail(NamedTuple):
    """A message to one address. `html` is the same text as HTML; `stop` is the address that ends messages of its kind
    with one POST (RFC 8058); `ident` makes repeated deliveries of a message recognisable; `subscription` is what it is
    sent for. These are "" where a message has none."""

    to: str
    subject: str
    text: str
    html: str = ""
    stop: str = ""
    ident: str = ""
    subscription: str = ""


class MailFailed(Exception):
    """A message was not accepted. The text contains neither an address nor parts of the message. `final`: a retry would
    fail too."""

    def __init__(self, problem: str, final: bool = False) -> None:
        super().__init__(problem)
        self.final = final


class Mailer:
    """Sends through the server of the settings; with `password` "" it does not sign in."""

    def __init__(self, settings: MailSettings, password: str = "") -> None:
        self._settings = settings
        self._password = password

    @property
    def enabled(self) -> bool:
        """Whether a server is configured."""
        return bool(self._settings.host)

    def send(self, mail: Mail) -> None:
        """Send a message. MailFailed."""
        message = self._compose(mail)
        try:
            with self._connect() as server:
                if self._settings.username:
                    server.login(self._settings.username, self._password)
                server.send_message(message, self._settings.sender, [mail.to])
        except smtplib.SMTPRecipientsRefused as error:
            code = max((code for code, _ in error.recipients.values()), default=0)
            raise MailFailed(f"the server refused the recipient ({code})", final=code >= 500) from None
        except smtplib.SMTPResponseException as error:
            raise MailFailed(f"the server answered {error.smtp_code}") from None
        except ssl.SSLError as error:
            raise MailFailed(f"no encrypted connection: {error.reason or type(error).__name__}") from None
        except (smtplib.SMTPException, OSError) as error:
            raise MailFailed(f"the connection failed: {type(error).__name__}") from None

    def _connect(self) -> "smtplib.SMTP":
        host = self._settings.host
        port = self._settings.port
        if self._settings.security == "none":
            return smtplib.SMTP(host, port, timeout=TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._settings.ca_file or None)
        if self._settings.security == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_S, context=context)
        server = smtplib.SMTP(host, port, timeout=TIMEOUT_S)
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
        return server

    def _compose(self, mail: Mail) -> EmailMessage:
        """Return the message. The library refuses a header with a line break (RFC 5322, 2.2)."""
        # An address in a header must be in one piece: a folded one would be encoded word by word.
        message = EmailMessage(policy=policy.SMTP.clone(max_line_length=MAX_LINE_LENGTH) if mail.stop else policy.SMTP)
        try:
            message["From"] = self._settings.sender
            message["To"] = headerregistry.Address(addr_spec=mail.to)
            message["Subject"] = " ".join(mail.subject.split())[:MAX_SUBJECT_LENGTH]
            message["Date"] = formatdate()
            domain = self._settings.sender.rpartition("@")[2].strip("> ") or None
            message["Message-ID"] = f"<{mail.ident}@{domain}>" if mail.ident and domain else make_msgid(domain=domain)
            message["Auto-Submitted"] = "auto-generated"
            if mail.stop:
                message["List-Unsubscribe"] = f"<{mail.stop}>"
                message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
            message.set_content(mail.text)
            if mail.html:
                message.add_alternative(mail.html, subtype="html")
        except (ValueError, MessageError, IndexError):
            raise MailFailed("the address is not a valid e-mail address", final=True) from None
        return message
