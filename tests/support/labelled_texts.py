"""A labelled set of texts for detectors: values made by their own rules, and texts that only look like values.

Everything is made from a seed, so that the set is the same each time and no value of a real person is in it. Values are
made without the checks of the gateway; python-stdnum has the check digits of some national numbers.
"""

import base64
import importlib
import random
import string
import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

ALNUM = string.ascii_letters + string.digits
URL64 = ALNUM + "_-"
HEX = "0123456789abcdef"
FIRST = (
    "anna",
    "ben",
    "chloe",
    "david",
    "elif",
    "farid",
    "grace",
    "hugo",
    "ines",
    "jonas",
    "kim",
    "lea",
    "mira",
    "noah",
)
LAST = ("meyer", "silva", "tanaka", "okafor", "novak", "rossi", "dubois", "larsen", "kaya", "smith", "iyer", "moreau")
HOSTS = ("mail.test", "acme-shop.com", "uni-berlin.de", "clinic.org", "post.co.uk", "example.fr", "corp.io", "firma.pl")


class LabelledText(NamedTuple):
    """A text with the value in it and the detector that must find it; both are "" for a text without a value."""

    text: str
    value: str
    detector: str


def pick(rng: random.Random, alphabet: str, size: int) -> str:
    return "".join(rng.choices(alphabet, k=size))


def digits(rng: random.Random, size: int) -> str:
    return pick(rng, string.digits, size)


def luhn_digit(number: str) -> str:
    """Return the check digit by the textbook: from the right, every second digit doubled, and its digits summed."""
    doubled = [int(digit) * (2 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(number))]
    return str(-sum(sum(map(int, str(figure))) for figure in doubled) % 10)


def payment_card(rng: random.Random) -> str:
    prefix, size = rng.choice((("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16)))
    number = prefix + digits(rng, size - 1 - len(prefix))
    number += luhn_digit(number)
    separator = rng.choice(("", "", " ", "-"))
    sizes = (4, 6, 5) if size == 15 else (4, 4, 4, 4)
    return separator.join(grouped(number, sizes))


def grouped(number: str, sizes: tuple[int, ...]) -> list[str]:
    groups = []
    for size in sizes:
        groups.append(number[:size])
        number = number[size:]
    return groups


def iban(rng: random.Random) -> str:
    country, shape = rng.choice(
        (("DE", "d" * 18), ("FR", "d" * 23), ("GB", "LLLL" + "d" * 14), ("NL", "LLLL" + "d" * 10))
    )
    account = "".join(rng.choice(string.digits if kind == "d" else string.ascii_uppercase) for kind in shape)
    moved = "".join(str(ord(letter) - 55) if letter.isalpha() else letter for letter in account + country + "00")
    number = f"{country}{98 - int(moved) % 97:02}{account}"
    if rng.random() < 0.5:
        return " ".join(number[place : place + 4] for place in range(0, len(number), 4))
    return number


def crc_token(prefix: str) -> Callable[[random.Random], str]:
    def make(rng: random.Random) -> str:
        body = pick(rng, ALNUM, 30)
        alphabet = string.digits + string.ascii_uppercase + string.ascii_lowercase
        number, check = zlib.crc32(body.encode()), ""
        for _ in range(6):
            number, place = divmod(number, 62)
            check = alphabet[place] + check
        return prefix + body + check

    return make


def date(rng: random.Random, form: str = "{y:02}{m:02}{d:02}") -> str:
    return form.format(y=rng.randrange(40, 99), m=rng.randrange(1, 13), d=rng.randrange(1, 29))


def numbered(module: str, body: Callable[[random.Random], str], form: str = "") -> Callable[[random.Random], str]:
    """Return the maker of a national number: a body with the check digit that python-stdnum accepts; `form` groups it,
    with a # for each character. Bodies without any check digit are made again."""

    def make(rng: random.Random) -> str:
        number = importlib.import_module(f"stdnum.{module}")
        while True:
            start = body(rng)
            for last in string.digits + string.ascii_uppercase:
                if number.is_valid(start + last):
                    return shaped(start + last, form)

    return make


def shaped(number: str, form: str) -> str:
    if not form:
        return number
    following = iter(number)
    return "".join(next(following) if character == "#" else character for character in form)


def us_ssn(rng: random.Random) -> str:
    return (
        f"{rng.choice((*range(1, 666), *range(667, 900))):03}-{rng.randrange(1, 100):02}-{rng.randrange(1, 10000):04}"
    )


def fr_nir(rng: random.Random) -> str:
    body = f"{rng.choice('12')}{rng.randrange(40, 99)}{rng.randrange(1, 13):02}{rng.randrange(10, 95)}{digits(rng, 6)}"
    number = f"{body}{97 - int(body) % 97:02}"
    return shaped(number, rng.choice(("", "# ## ## ## ### ### ##")))


def es_nif(rng: random.Random) -> str:
    number = rng.randrange(10_000_000, 99_999_999)
    return f"{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def be_nn(rng: random.Random) -> str:
    number = f"{date(rng)}{rng.randrange(1, 998):03}"
    return shaped(f"{number}{97 - int(number) % 97:02}", "##.##.##-###.##")


def fi_hetu(rng: random.Random) -> str:
    day = date(rng, "{d:02}{m:02}{y:02}")
    serial = f"{rng.randrange(2, 900):03}"
    return f"{day}-{serial}{'0123456789ABCDEFHJKLMNPRSTUVWXY'[int(day + serial) % 31]}"


def se_personnummer(rng: random.Random) -> str:
    number = date(rng) + digits(rng, 3)
    return f"{number[:6]}-{number[6:]}{luhn_digit(number)}"


def br_cpf(rng: random.Random) -> str:
    number = digits(rng, 9)
    for _ in range(2):
        size = len(number) + 1
        rest = sum(int(digit) * (size - place) for place, digit in enumerate(number)) * 10 % 11
        number += str(rest % 10)
    return shaped(number, "###.###.###-##")


def ch_ahv(rng: random.Random) -> str:
    number = "756" + digits(rng, 9)
    total = sum(int(digit) * (1 if place % 2 == 0 else 3) for place, digit in enumerate(number))
    return shaped(f"{number}{-total % 10}", "###.####.####.##")


def kr_rrn(rng: random.Random) -> str:
    number = f"{date(rng)}{rng.choice('12')}{rng.randrange(0, 96):02}{digits(rng, 3)}"
    total = sum(int(digit) * weight for digit, weight in zip(number, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5), strict=True))
    return f"{number[:6]}-{number[6:]}{(11 - total % 11) % 10}"


def cn_ric(rng: random.Random) -> str:
    number = f"110105{1940 + rng.randrange(60)}{rng.randrange(1, 13):02}{rng.randrange(1, 29):02}{digits(rng, 3)}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return number + "10X98765432"[sum(int(d) * weight for d, weight in zip(number, weights, strict=True)) % 11]


def email(rng: random.Random) -> str:
    name = rng.choice(FIRST) + rng.choice((".", "_", "", "-", "+")) + rng.choice(LAST)
    return f"{name}{rng.choice(('', '7', '1984'))}@{rng.choice(HOSTS)}"


def phone(rng: random.Random) -> str:
    return rng.choice(
        (
            f"+49 30 {digits(rng, 3)}{rng.randrange(1000, 9999)}",
            f"+44 20 7{digits(rng, 3)} {digits(rng, 4)}",
            f"+33 6 {rng.randrange(10, 99)} {digits(rng, 2)} {digits(rng, 2)} {digits(rng, 2)}",
            f"(212) {rng.randrange(220, 990)}-{digits(rng, 4)}",
            f"415-{rng.randrange(220, 990)}-{digits(rng, 4)}",
            f"+1 650 {rng.randrange(220, 990)} {digits(rng, 4)}",
            f"0041 44 {rng.randrange(220, 660)} {digits(rng, 2)} {digits(rng, 2)}",
        )
    )


def ip_address(rng: random.Random) -> str:
    if rng.random() < 0.7:
        first = rng.choice((10, 172, 192, 84, 91, 203, 8, 34))
        return f"{first}.{rng.randrange(1, 255)}.{rng.randrange(1, 255)}.{rng.randrange(1, 255)}"
    return f"2001:db8:{pick(rng, HEX[1:], 4)}::{rng.randrange(1, 9)}{pick(rng, HEX, 3)}:{pick(rng, HEX[1:], 2)}"


def token_of(rng: random.Random) -> str:
    def part(data: str) -> str:
        return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")

    body = part(f'{{"sub":"{digits(rng, 9)}","iat":{digits(rng, 10)}}}')
    return f"{part(rng.choice(HEADERS))}.{body}.{pick(rng, URL64, 43)}"


HEADERS = ('{"alg":"HS256","typ":"JWT"}', '{"alg":"RS256","kid":"a1"}', '{"typ":"JWT","alg":"ES256"}')


def private_key(rng: random.Random) -> str:
    kind = rng.choice(("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "))
    ending = rng.choice(("\n", "\\n"))
    lines = ending.join(pick(rng, ALNUM + "+/", 64) for _ in range(rng.randrange(3, 12)))
    return f"-----BEGIN {kind}PRIVATE KEY-----{ending}{lines}{ending}-----END {kind}PRIVATE KEY-----"


def random_secret(rng: random.Random) -> str:
    return pick(rng, ALNUM, 12) + rng.choice("!#_.") + rng.choice(string.digits) + pick(rng, ALNUM, 5) + "aB3"


def joined(*pieces: Callable[[random.Random], str] | str) -> Callable[[random.Random], str]:
    return lambda rng: "".join(piece if isinstance(piece, str) else piece(rng) for piece in pieces)


def chars(alphabet: str, size: int) -> Callable[[random.Random], str]:
    return lambda rng: pick(rng, alphabet, size)


def one_of(*words: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(words)


# The maker of each detector's values, and the text around a value that its detector needs ("{}": none).
MAKERS: dict[str, tuple[Callable[[random.Random], str], str]] = {
    "openai_key": (joined("sk-", one_of("proj-", "svcacct-", "admin-"), chars(URL64, 80), "x"), "{}"),
    "anthropic_key": (joined("sk-ant-api03-", chars(URL64, 93), "AA"), "{}"),
    "google_key": (joined("AIza", chars(URL64, 34), "k"), "{}"),
    "gateway_key": (joined("llmgtwy_", chars(URL64, 39), "q"), "{}"),
    "huggingface_token": (joined("hf_", chars(string.ascii_letters, 34)), "{}"),
    "aws_access_key": (joined(one_of("AKIA", "ASIA"), chars(string.ascii_uppercase + "234567", 16)), "{}"),
    "aws_secret_key": (chars(ALNUM + "+/", 40), "aws_secret_access_key = {}"),
    "azure_storage_key": (joined(chars(ALNUM + "+/", 86), "=="), "AccountName=shop;AccountKey={};EndpointSuffix=x"),
    "github_token": (crc_token("ghp_"), "{}"),
    "github_fine_grained_token": (joined("github_pat_", chars(ALNUM, 22), "_", chars(ALNUM, 59)), "{}"),
    "gitlab_token": (joined("glpat-", chars(URL64, 19), "z"), "{}"),
    "npm_token": (crc_token("npm_"), "{}"),
    "pypi_token": (joined("pypi-AgEIcHlwaS5vcmc", chars(URL64, 120), "w"), "{}"),
    "slack_token": (joined("xoxb-", chars("123456789", 12), "-", chars("123456789", 13), "-", chars(ALNUM, 24)), "{}"),
    "slack_webhook": (
        joined("https://hooks.slack.com/services/T", chars(ALNUM, 10), "/B", chars(ALNUM, 10), "/", chars(ALNUM, 24)),
        "{}",
    ),
    "stripe_key": (joined(one_of("sk_live_", "rk_live_", "sk_test_"), chars(ALNUM, 24)), "{}"),
    "sendgrid_key": (joined("SG.", chars(URL64, 22), ".", chars(URL64, 42), "x"), "{}"),
    "telegram_token": (joined(chars("123456789", 9), ":AA", chars(URL64, 32), "x"), "{}"),
    "digitalocean_token": (joined("dop_v1_", chars(HEX, 64)), "{}"),
    "vault_token": (joined("hvs.", chars(URL64, 94), "x"), "{}"),
    "private_key": (private_key, "{}"),
    "json_web_token": (token_of, "{}"),
    "url_password": (random_secret, "postgresql://app:{}@db.internal:5432/shop"),
    "assigned_secret": (random_secret, 'db_password = "{}"'),
    "payment_card": (payment_card, "{}"),
    "iban": (iban, "{}"),
    "email": (email, "{}"),
    "phone": (phone, "{}"),
    "ip_address": (ip_address, "{}"),
    "us_ssn": (us_ssn, "{}"),
    "gb_nhs": (numbered("gb.nhs", joined(one_of("4", "6"), chars(string.digits, 8)), "### ### ####"), "NHS number: {}"),
    "de_idnr": (numbered("de.idnr", joined(chars("123456789", 1), chars(string.digits, 9))), "Steuer-ID {}"),
    "fr_nir": (fr_nir, "{}"),
    "es_nif": (es_nif, "{}"),
    "it_codice_fiscale": (
        numbered(
            "it.codicefiscale", joined(chars("BCDFGLMNPRST", 6), chars("456789", 2), "A", one_of("12", "27"), "F205")
        ),
        "{}",
    ),
    "nl_bsn": (numbered("nl.bsn", joined(chars("12", 1), chars(string.digits, 7))), "BSN: {}"),
    "pl_pesel": (numbered("pl.pesel", joined(date, chars(string.digits, 4))), "PESEL {}"),
    "be_nn": (be_nn, "{}"),
    "br_cpf": (br_cpf, "{}"),
    "in_aadhaar": (
        numbered("in_.aadhaar", joined(chars("23456789", 1), chars(string.digits, 10)), "#### #### ####"),
        "{}",
    ),
    "se_personnummer": (se_personnummer, "{}"),
    "fi_hetu": (fi_hetu, "{}"),
    "ch_ahv": (ch_ahv, "{}"),
    "ca_sin": (numbered("ca.sin", joined(chars("1234567", 1), chars(string.digits, 7)), "### ### ###"), "SIN {}"),
    "mx_curp": (
        numbered(
            "mx.curp", joined("B", one_of("OX", "AE", "IU"), "W", date, one_of("H", "M"), "VZNSS", chars("0123", 1))
        ),
        "{}",
    ),
    "cn_ric": (cn_ric, "{}"),
    "kr_rrn": (kr_rrn, "{}"),
}

CARRIERS = (
    "Please check {} for me.",
    "The value is {}, as agreed.",
    '{{"field": "{}", "count": 3}}',
    "export VALUE={}\nmake deploy",
    "- first item\n- {}\n- last item",
    "Übersicht für München: {} (geprüft)",
    "# settings\nvalue: {}\n",
    "{}",
    "| name | value |\n| a | {} |",
    "log: request failed for {} after 3 retries",
)
QUOTED = ("Please check '{}' for me.", "config: {}\n", "x = load()\n{}\n", "{}", "Übersicht: {} (geprüft)")


def positives(seed: int, each: int) -> Iterator[LabelledText]:
    """Yield `each` texts for every detector."""
    rng = random.Random(seed)
    for detector, (make, context) in MAKERS.items():
        carriers = CARRIERS if context == "{}" else QUOTED
        for number in range(each):
            value = make(rng)
            text = carriers[number % len(carriers)].format(context.format(value))
            yield LabelledText(text, value, detector)


def wrong_digit(rng: random.Random, value: str) -> str:
    """Return the value with its last digit changed."""
    place = max(index for index, character in enumerate(value) if character.isdigit())
    return value[:place] + str((int(value[place]) + rng.randrange(1, 10)) % 10) + value[place + 1 :]


SNIPPETS = (
    'package main\n\nimport "fmt"\n\nfunc main() {{ fmt.Println("build {0}", {1}) }}',
    "def total(rows):\n    return sum(row.price * {1} for row in rows if row.id != '{0}')",
    "const id = '{0}'; export async function load() {{ return fetch(`/api/v2/items/{1}`); }}",
    'fn main() {{ let checksum: u64 = 0x{0}; println!("{{}}", checksum + {1}); }}',
    "SELECT id, price FROM orders WHERE id = {1} AND hash = '{0}' AND created > '2024-05-17 10:15:00';",
    '#include <stdio.h>\nint main(void) {{ printf("%s %d\\n", "{0}", {1}); return std::max(1, 2); }}',
    'public final class Order {{ private static final long serialVersionUID = {1}L; String hash = "{0}"; }}',
    "#!/bin/sh\ngit checkout {0} && docker run --rm -p 8080:80 image:1.{1}.0 @scope/pkg@2.3.4",
    "class Foo < Bar\n  VERSION = '4.{1}.12'\n  def digest = '{0}'\nend",
    "<?php $hash = '{0}'; echo number_format({1}, 2); // @param string $password the password",
    "@app.route('/users/<id>')\n@decorator\npassword = os.environ['DB_PASSWORD']  # {0} {1}",
)
NEGATIVES: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: f"commit {pick(rng, HEX, 40)}",
    lambda rng: f"md5 {pick(rng, HEX, 32)} sha256 {pick(rng, HEX, 64)}",
    lambda rng: f"id: {uuid.UUID(int=rng.getrandbits(128))}",
    lambda rng: f"Total: $ {rng.randrange(1, 10**7):,}.{digits(rng, 2)} and EUR {digits(rng, 4)},{digits(rng, 2)}",
    lambda rng: (
        f"version {rng.randrange(20)}.{rng.randrange(40)}.{rng.randrange(200)}.{rng.randrange(200)} was released"
    ),
    lambda rng: (
        f"upgrade lib from v{rng.randrange(9)}.{rng.randrange(99)}.{rng.randrange(99)} to 10.0.{digits(rng, 5)}.1"
    ),
    lambda rng: f"Part no. 0{digits(rng, 2)}-1{digits(rng, 2)}-{digits(rng, 4)} in stock",
    lambda rng: f"2024-0{rng.randrange(1, 10)}-1{rng.randrange(10)}T12:{rng.randrange(10, 60)}:07.{digits(rng, 6)}Z",
    lambda rng: f"timestamp={rng.randrange(1_600_000_000, 1_800_000_000)}{digits(rng, 3)} offset {digits(rng, 5)}",
    lambda rng: f"order {wrong_digit(rng, payment_card(rng))} shipped",
    lambda rng: f"reference {wrong_digit(rng, iban(rng))} unknown",
    lambda rng: (
        f"Steuer-ID {wrong_digit(rng, MAKERS['de_idnr'][0](rng))}, PESEL {wrong_digit(rng, MAKERS['pl_pesel'][0](rng))}"
    ),
    lambda rng: f"BSN {wrong_digit(rng, MAKERS['nl_bsn'][0](rng))} NHS {wrong_digit(rng, MAKERS['gb_nhs'][0](rng))}",
    lambda rng: (
        f"CPF {wrong_digit(rng, br_cpf(rng))}, AHV {wrong_digit(rng, ch_ahv(rng))}, {wrong_digit(rng, be_nn(rng))}"
    ),
    lambda rng: f"ghp_{pick(rng, ALNUM, 36)} and npm_{pick(rng, ALNUM, 36)}",
    lambda rng: "sk-" + "x" * 48 + " AKIA" + "X" * 16 + " hf_" + "a" * 34 + f" {digits(rng, 3)}",
    lambda rng: f'password = "<your-password-{digits(rng, 2)}>" api_key: "YOUR_API_KEY_HERE"',
    lambda rng: f'token_count = "{digits(rng, 9)}" secret_name: "production/database/main-{rng.randrange(9)}"',
    lambda rng: f"git@github.com:acme/shop-{digits(rng, 3)}.git and icon@2x.png",
    lambda rng: f"https://shop.test:8443/items/{digits(rng, 12)}?page={digits(rng, 2)}",
    lambda rng: f"postgresql://app:${{DB_PASSWORD}}@db:5432/shop{digits(rng, 2)}",
    lambda rng: f"base64 {base64.b64encode(rng.randbytes(60)).decode()}",
    lambda rng: (
        f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(rng.randbytes(48)).decode()}\n-----END CERTIFICATE-----"
    ),
    lambda rng: f"eyJ{pick(rng, URL64, 20)}.{pick(rng, URL64, 30)} is cut",
    lambda rng: f"ISBN 978-3-16-{digits(rng, 6)}-0, lat {rng.uniform(-90, 90):.7f}, lon {rng.uniform(-180, 180):.7f}",
    lambda rng: f"at 12:34:{rng.randrange(10, 60)} the ratio was 16:9 and the score 3:{digits(rng, 2)}",
    lambda rng: f"netmask 255.255.255.0, gateway 127.0.0.1, any 0.0.0.0 port {digits(rng, 4)}",
    lambda rng: rng.choice(SNIPPETS).format(pick(rng, HEX, rng.choice((7, 12, 40))), rng.randrange(10, 10**8)),
    lambda rng: f"{digits(rng, 20)} {digits(rng, 24)} {rng.randrange(10**8)}.{digits(rng, 12)}",
    lambda rng: (
        f"tracking 1Z{pick(rng, string.digits + string.ascii_uppercase, 16)} batch {digits(rng, 7)}-{digits(rng, 6)}"
    ),
)


def negatives(seed: int, count: int) -> Iterator[LabelledText]:
    """Yield `count` texts without a value."""
    rng = random.Random(seed)
    for number in range(count):
        text = NEGATIVES[number % len(NEGATIVES)](rng)
        yield LabelledText(CARRIERS[rng.randrange(len(CARRIERS))].format(text), "", "")
