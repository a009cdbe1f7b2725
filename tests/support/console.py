"""The console's pages as a person's browser requests them."""

import re
from html import unescape
from typing import Any

from support.management import Person, Tenants

OWN = {"Origin": "http://localhost"}
LIST = re.compile(r'<table class="rows cards.*?</table>', re.DOTALL)
TITLE = re.compile(r'<th scope="col"[^>]*>(?:<a[^>]*>)?([^<]*)<')
CELL = re.compile(r'<td[^>]*>|<th scope="row"[^>]*>')
CSRF = re.compile(r'name="csrf" value="([^"]*)"')


def browser_headers(who: Person) -> dict[str, str]:
    return OWN | {"Cookie": f"llmgateway.session_token={who.token}"}


def open_page(tenants: Tenants, who: Person, path: str, status: int = 200) -> str:
    """Return the text of a page, which must have this status."""
    answer = tenants.client.get(path, headers=browser_headers(who))
    assert answer.status_code == status, answer.text
    check_lists(answer.text)
    return unescape(answer.text)


def check_lists(page: str) -> None:
    """Assert that each row of a page's lists has a cell for each column, labelled with its title if at all."""
    for rows in LIST.findall(page):
        titles = TITLE.findall(rows)
        for row in rows.partition("<tbody>")[2].split("<tr>")[1:]:
            cells = CELL.findall(row)
            assert "colspan" in row or len(cells) == len(titles), rows
            for cell, title in zip(cells, titles, strict=False):
                assert "data-label" not in cell or f'data-label="{title}"' in cell, (title, cell)


def press_button(tenants: Tenants, who: Person, path: str, action: str, **fields: str) -> Any:
    """Send the form of a page with the button `action`, and return the answer. All forms of a session share a token."""
    csrf = CSRF.findall(open_page(tenants, who, "/console/keys/new"))[0]
    data = {"csrf": csrf, "action": action, **fields}
    return tenants.client.post(path, headers=browser_headers(who), data=data)
