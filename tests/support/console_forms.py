"""The forms of the console's pages: their fields with what is in them, and plausible values."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

SAMPLES = {"email": "new@acme.example", "number": "5", "url": "https://llm.acme.example/v1", "date": "2031-01-31"}
SAMPLES |= {"datetime-local": "2031-01-31T12:00:00", "password": "sk-a-long-secret-0123456789"}
SAMPLES |= {"numeric": "10", "decimal": "5", "select": ""}
# Fields that accept only values of a certain form, by name.
NAMED = {
    "periodUsageDurationValue": "1",
    "ruleValue": "gpt-4o-mini", "email": "new@acme.example", "url": "https://alerts.acme.example/hook", "base_url": "https://llm.acme.example/v1",
    "input_price": "1", "output_price": "1", "cached_price": "1", "context_length": "100", "max_output": "100",
    "allowedModels": "gpt-4o-mini", "issuer": "https://issuer.example",
    "claims": "sub = repo:acme/*", "attribution": "user = actor", "jwksUrl": "", "jwks": "",
    "networks": "203.0.113.0/24", "baseUrl": "", "region": "", "models": "",
    "weight-price": "1", "weight-uptime": "1", "weight-throughput": "1", "weight-latency": "1",
    "cacheDurationSeconds": "60",
}  # fmt: skip


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
        return NAMED.get(name, SAMPLES.get(self.kind, "Sample"))

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
