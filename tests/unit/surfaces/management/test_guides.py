"""The guides of `docs/` as pages."""

import re
from urllib.parse import urljoin

import pytest

from gateway.surfaces.console import guides

PREFIX = "http://localhost/docs/guides"


@pytest.fixture
def visitor(shared_tenants):
    """A visitor without a session."""
    return shared_tenants.gateway.app.flask.test_client()


def test_every_link_of_every_guide_leads_to_a_heading_or_file(visitor) -> None:
    anchors = {name: set(re.findall(r' id="([^"]+)"', guides.render(name))) for name in guides.list_guides()}
    for name in guides.list_guides():
        for link in re.findall(r'(?:href|src)="([^"]+)"', guides.render(name)):
            address, _, anchor = urljoin(f"{PREFIX}/{name}", link).partition("#")
            if not address.startswith(f"{PREFIX}/"):
                assert address.startswith(("https://", "http://")), (name, link)
                continue
            target = address.removeprefix(f"{PREFIX}/")
            assert target in anchors or target in guides.list_images(), (name, link)
            assert not anchor or anchor in anchors[target], (name, link)


def test_a_guide_is_shown_with_its_title_and_tables(visitor) -> None:
    answer = visitor.get("/docs/guides/limits")
    text = answer.get_data(as_text=True)
    assert answer.status_code == 200 and text.count("<h1>") == 1 and "<table>" in text
    assert "script" not in answer.headers["Content-Security-Policy"]


def test_a_guide_in_a_folder_and_an_image_are_served(visitor) -> None:
    assert visitor.get("/docs/guides/decisions/0001-one-neutral-form").status_code == 200
    assert visitor.get("/docs/guides/images/console-overview.png").mimetype == "image/png"
    drawing = visitor.get("/docs/guides/performance.svg")
    assert drawing.mimetype == "image/svg+xml" and drawing.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in drawing.headers["Content-Security-Policy"]
    assert drawing.headers["Cache-Control"] == "public, max-age=3600"


@pytest.mark.parametrize("name", ["nothing", "../pyproject", "..%2fREADME", "decisions", "limits.md"])
def test_other_names_are_404(visitor, name) -> None:
    assert visitor.get(f"/docs/guides/{name}").status_code == 404


def test_the_list_names_every_guide(visitor) -> None:
    text = visitor.get("/docs/guides").get_data(as_text=True)
    assert all(f'href="{PREFIX}/{name}"' in text for name in guides.list_guides())


def test_a_search_leads_to_the_section(visitor) -> None:
    text = visitor.get("/docs/guides?q=webhook+secret").get_data(as_text=True)
    assert re.search(rf'href="{PREFIX}/\w+#[\w-]+"', text)


def test_a_search_without_a_hit_says_so(visitor) -> None:
    text = visitor.get("/docs/guides?q=%3Cscript%3Ealert(1)").get_data(as_text=True)
    assert "No guide contains these words." in text and "<script" not in text


def test_titles_count_more_than_text() -> None:
    assert guides.search("upgrade")[0].section.guide.name == "upgrade"


def test_a_long_search_is_cut() -> None:
    assert guides.search("x " * 10_000) is not None
    assert guides.search("") == []


def test_names_with_underscores_stay_whole() -> None:
    assert guides.plain_text("`provider_key_limit` is *one* [code](errors.md)") == "provider_key_limit is one code"
    assert guides.slug("The `max_spend` of keys!") == "the-max_spend-of-keys"
