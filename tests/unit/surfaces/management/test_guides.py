"""The guides of `docs/` as pages."""

import re
from urllib.parse import urljoin

import pytest

from gateway.surfaces.console import guide_pages

PREFIX = "http://localhost/docs/guides"


@pytest.fixture
def visitor(shared_tenants):
    """A visitor without a session."""
    return shared_tenants.gateway.app.flask.test_client()


def test_every_link_of_every_guide_leads_to_a_heading_or_file(visitor) -> None:
    anchors = {name: set(re.findall(r' id="([^"]+)"', guide_pages.render(name))) for name in guide_pages.list_guides()}
    for name in guide_pages.list_guides():
        for link in re.findall(r'(?:href|src)="([^"]+)"', guide_pages.render(name)):
            address, _, anchor = urljoin(f"{PREFIX}/{name}", link).partition("#")
            if not address.startswith(f"{PREFIX}/"):
                assert address.startswith(("https://", "http://")), (name, link)
                continue
            target = address.removeprefix(f"{PREFIX}/")
            assert target in anchors or target in guide_pages.list_images(), (name, link)
            assert not anchor or anchor in anchors[target], (name, link)


def test_a_guide_is_shown_with_its_title_and_tables(visitor) -> None:
    answer = visitor.get("/docs/guides/limits")
    text = answer.get_data(as_text=True)
    assert answer.status_code == 200 and text.count("<h1>") == 1 and "<table>" in text
    assert "script-src 'self';" in answer.headers["Content-Security-Policy"]


def test_a_guide_in_a_folder_and_an_image_are_served(visitor) -> None:
    assert visitor.get("/docs/guides/decisions/0001-one-neutral-form").status_code == 200
    assert visitor.get("/docs/guides/images/console-overview.webp").mimetype == "image/webp"
    drawing = visitor.get("/docs/guides/performance.svg")
    assert drawing.mimetype == "image/svg+xml" and drawing.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in drawing.headers["Content-Security-Policy"]
    assert drawing.headers["Cache-Control"] == "public, max-age=3600"


@pytest.mark.parametrize("name", ["nothing", "../pyproject", "..%2fREADME", "decisions", "limits.md"])
def test_other_names_are_404(visitor, name) -> None:
    assert visitor.get(f"/docs/guides/{name}").status_code == 404


def test_the_list_names_every_guide(visitor) -> None:
    text = visitor.get("/docs/guides").get_data(as_text=True)
    assert all(f'href="{PREFIX}/{name}"' in text for name in guide_pages.list_guides())


def test_a_search_leads_to_the_section(visitor) -> None:
    text = visitor.get("/docs/guides?q=webhook+secret").get_data(as_text=True)
    assert re.search(rf'href="{PREFIX}/\w+#[\w-]+"', text)


def test_a_search_without_a_hit_says_so(visitor) -> None:
    text = visitor.get("/docs/guides?q=%3Cscriptt%3Ezzzz(77777)").get_data(as_text=True)
    assert "No guide contains these words." in text and "<scriptt>" not in text


# A likely search → the page that is about it.
SUBJECTS = {
    "alerts": "health",
    "audit log": "management",
    "backup": "backup",
    "caching": "caching",
    "claude code": "claude-code",
    "codex": "clients",
    "command line": "cli",
    "docker": "deployment",
    "errors": "errors",
    "failover": "routing",
    "forward proxy": "deployment",
    "how do I install the cli": "cli",
    "how do I upgrade": "upgrade",
    "invoice": "chargeback",
    "limits": "limits",
    "litellm": "moving",
    "mcp": "mcp",
    "okta": "sso",
    "openrouter": "moving",
    "passkeys": "passkeys",
    "permissions": "permissions",
    "rate limit": "limits",
    "retention": "storage",
    "routing": "routing",
    "sandbox": "sandbox",
    "scim": "scim",
    "service account": "management",
    "sso": "sso",
    "environment variables": "start",
    "videos": "videos",
}


@pytest.mark.parametrize("query", SUBJECTS)
def test_the_page_of_a_subject_comes_first(query) -> None:
    assert guide_pages.search(query)[0].guide.name == SUBJECTS[query]


@pytest.mark.parametrize("name", sorted(guide_pages.list_guides()))
def test_the_title_of_a_guide_finds_it_first(name) -> None:
    guide = guide_pages.list_guides()[name]
    assert guide_pages.search(guide.title)[0].guide == guide


def test_a_word_that_no_guide_contains_does_not_hide_the_others() -> None:
    assert guide_pages.search("passkeys zzzz")[0].guide.name == "passkeys"


def test_a_guide_has_a_table_of_its_headings(visitor) -> None:
    text = visitor.get("/docs/guides/limits").get_data(as_text=True)
    contents = text.partition('aria-label="On this page"')[2].partition("</nav>")[0]
    assert re.findall(r'href="#([^"]+)"', contents) == re.findall(r'<h[23] id="([^"]+)"', text)


def test_examples_name_the_address_of_the_reader() -> None:
    for name in guide_pages.list_guides():
        page = guide_pages.find_page(name, "https://llm.example.org/team")
        assert page is not None
        assert "http://127.0.0.1:4001" not in page.html
        # Nothing else is changed.
        assert page.html.replace("https://llm.example.org/team", "http://127.0.0.1:4001") == guide_pages.render(name)


def test_the_address_of_the_reader_is_no_markup() -> None:
    page = guide_pages.find_page("clients", 'http://<b>"x"')
    assert page is not None and "http://&lt;b&gt;&#34;x&#34;/v1" in page.html


@pytest.mark.parametrize("path", ["/docs/nothing", "/docs/guides/nothing", "/docs/a/b"])
def test_an_unknown_page_keeps_the_navigation_and_the_search(visitor, path) -> None:
    answer = visitor.get(path)
    text = answer.get_data(as_text=True)
    assert answer.status_code == 404 and 'aria-label="Guides"' in text and 'role="search"' in text


def test_titles_count_more_than_text() -> None:
    assert guide_pages.search("upgrade")[0].guide.name == "upgrade"


def test_a_long_search_is_cut() -> None:
    assert guide_pages.search("x " * 10_000) is not None
    assert guide_pages.search("") == []


def test_names_with_underscores_stay_whole() -> None:
    assert guide_pages.plain_text("`provider_key_limit` is *one* [code](errors.md)") == "provider_key_limit is one code"
    assert guide_pages.slug("The `max_spend` of keys!") == "the-max_spend-of-keys"
