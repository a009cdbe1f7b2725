"""The forms of the console's pages: their fields with what is in them, and plausible values."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser

SAMPLES = {"email": "new@acme.example", "number": "5", "url": "https://llm.acme.example/v1", "date": "2031-01-31"}
SAMPLES |= {"datetime-local": "2031-01-31T12:00:00", "password": "sk-a-long-secret-0123456789"}
SAMPLES |= {"numeric": "10", "decimal": "5", "select": ""}
# From RFC 7517, appendix A.1.
PUBLIC_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "kid": "1",
}
# Fields that accept only some texts, by name.
NAMED = {
    "allowedCountries": "DE, FR",
    "allowedModels": "gpt-4o-mini",
    "allowedProviders": "anthropic, openai",
    "attribution": "user = actor",
    "baseUrl": "https://llm.acme.example/other",
    "base_url": "https://llm.acme.example/other",
    "blockedModels": "gpt-4o",
    "blockedProviders": "zai",
    "claims": "sub = repo:acme/*",
    "issuer": "https://issuer.example",
    "jwks": json.dumps({"keys": [PUBLIC_KEY]}, indent=2),
    "jwksUrl": "https://issuer.example/keys",
    "managed_settings": '{\n  "model": "sonnet"\n}',
    "models": "gpt-4o-mini",
    "networks": "203.0.113.0/24",
    "periodUsageDurationValue": "1",
    "provider": "openai",
    "routing_key": "",
    "ruleValue": "gpt-4o-mini",
    "url": "https://alerts.acme.example/hook",
}


@dataclass
class FormField:
    """A field of a form. `kind` is its type, its input mode or its element; `value` is "" for a box without a tick."""

    kind: str
    value: str
    choices: list[str] = field(default_factory=list)

    @property
    def is_box(self) -> bool:
        return self.kind in ("checkbox", "radio")

    def sample(self, name: str) -> str:
        """Return a plausible value for the field with this name."""
        return NAMED.get(name, SAMPLES.get(self.kind, "sample"))

    def filled(self, name: str) -> str:
        """Return the value of the field, or a plausible one if it is empty."""
        if self.kind == "textarea" or not self.value:
            return self.sample(name)
        return self.value


@dataclass
class Form:
    """A form that posts, with the names and values of its buttons."""

    action: str
    fields: dict[str, FormField] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)


def read_form(page: str, action: str) -> Form:
    """Return the first form of a page with this action."""
    parser = FormParser()
    parser.feed(page)
    return next(form for form in parser.forms if ("action", action) in form.buttons)


class FormParser(HTMLParser):
    """Reads the forms of a page that post."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._open: FormField | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = Form(attributes.get("action", ""))
            if attributes.get("method", "").lower() == "post":
                self.forms.append(self._form)
        elif self._form is not None:
            self._read(self._form, tag, attributes)

    def _read(self, form: Form, tag: str, attributes: dict[str, str]) -> None:
        name = attributes.get("name", "")
        if tag == "button" and name:
            form.buttons.append((name, attributes.get("value", "")))
        elif tag == "input" and name:
            kind = attributes.get("inputmode", attributes.get("type", "text"))
            value = attributes.get("value", "")
            if kind == "checkbox":
                value = (value or "on") if "checked" in attributes else ""
            if kind != "radio" or "checked" in attributes:
                form.fields[name] = FormField(kind, value)
        elif tag in ("textarea", "select"):
            self._open = form.fields[name] = FormField(tag, "")
        elif tag == "option" and self._open is not None:
            value = attributes.get("value", "")
            if "selected" in attributes or not self._open.choices:
                self._open.value = value
            self._open.choices.append(value)

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._open.kind == "textarea":
            self._open.value += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag in ("textarea", "select"):
            self._open = None
