"""The built site: its links lead somewhere, it needs no network, and fits small screens."""

import functools
import http.server
import re
import shutil
import subprocess
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parents[2] / "build" / "site"

if not (SITE / "index.html").exists():
    pytest.skip("there is no site in build/site: run make docs", allow_module_level=True)

PAGES = [p for p in sorted(SITE.rglob("*.html")) if "_static" not in p.parts]

#: Attributes from which a browser loads something by itself, by element.
LOADED = {
    **dict.fromkeys(["embed", "iframe", "img", "script", "source", "video"], "src"),
    "link": "href",
    "object": "data",
}

#: A page that opens all others at a width, and lists how wide their content is. What does
#: not fit scrolls with the page or, as the theme has it, with the article.
MEASURE = """<body><script>
const [pages, widths, scrolled] = [%s, [360, 1280], ["html", ".bd-article-container"]];
(async () => {
  for (const width of widths) for (const page of pages) {
    const frame = document.createElement("iframe");
    Object.assign(frame, {width, height: 800, src: page});
    document.body.append(frame);
    await new Promise(loaded => frame.onload = loaded);
    const parts = scrolled.map(of => frame.contentDocument.querySelector(of));
    const shown = parts.filter(Boolean);
    const found = width + Math.max(...shown.map(of => of.scrollWidth - of.clientWidth));
    frame.remove();
    document.body.append(`${page} ${width} ${found};`);
  }
})();
</script></body>"""


class Elements(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self, page):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes.get("id"), attributes.get("name")}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if attributes.get(LOADED.get(tag)):
            self.loaded.append(attributes[LOADED[tag]])
        # Pictures for screens of several densities: a URL and its density, by commas.
        of_densities = (attributes.get("srcset") or "").split(",")
        self.loaded += [of.split()[0] for of in of_densities if of.strip()]


@functools.cache
def elements(page):
    return Elements(page)


def name_of(page):
    return str(page.relative_to(SITE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links__lead_to_pages_and_headings_of_the_site(page):
    missing = []
    for link in elements(page).links + elements(page).loaded:
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        is_there = target.is_file() and target.is_relative_to(SITE.resolve())
        if is_there and parts.fragment and target.suffix == ".html":
            is_there = unquote(parts.fragment) in elements(target).ids
        if not is_there:
            missing.append(link)

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages__load_nothing_from_the_network(page):
    loaded = elements(page).loaded + loaded_by_styles(page.read_text(encoding="utf-8"))

    assert [url for url in loaded if urlsplit(url).netloc] == []


def loaded_by_styles(text):
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", text)


def test_styles__load_nothing_from_the_network():
    texts = [style.read_text(encoding="utf-8") for style in SITE.rglob("*.css")]

    loaded = [url for text in texts for url in loaded_by_styles(text)]

    assert any(url.endswith(".woff2") for url in loaded)
    assert [url for url in loaded if urlsplit(url).netloc] == []


def test_what_browsers_load__is_noticed(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<img src="//a/1" srcset="//a/2, //a/3 2x"><object data="//a/4"></object>'
        '<link href="//a/5">'
        "<style>@import '//a/6'; p { background: url('//a/7') }</style>"
    )

    found = Elements(page).loaded + loaded_by_styles(page.read_text())

    assert found == [f"//a/{n}" for n in range(1, 8)]


def measured(pages, profile):
    """The pages, the widths of their windows, and those of their content."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("there is no Chromium: Debian has it as the package chromium")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            name = self.path.removeprefix("/")
            if name in pages:
                text = pages[name]
            elif name == "_measure":
                text = MEASURE % [*pages]
            else:
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
             f"--user-data-dir={profile}", "--virtual-time-budget=1000000",
             f"http://127.0.0.1:{server.server_port}/_measure"],
            capture_output=True, text=True, timeout=250, check=True,
        )  # fmt: skip
        server.shutdown()
    return [
        (name, int(width), int(found))
        for name, width, found in re.findall(r"(\S+) (\d+) (\d+);", done.stdout)
    ]


def test_pages__are_no_wider_than_a_telephone_and_a_laptop(tmp_path):
    found = measured(
        {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}, tmp_path
    )

    assert len(found) == 2 * len(PAGES)
    assert [of for of in found if of[2] > of[1]] == []


@pytest.mark.parametrize("end", ["</article>", "</body>"])
def test_pages__that_are_too_wide_are_noticed(end, tmp_path):
    page = (SITE / "start.html").read_text(encoding="utf-8")
    assert page.count(end) == 1
    wide = page.replace(end, f'<p style="width: 800px">wide</p>{end}')

    found = measured({"start.html": wide}, tmp_path)

    assert [width < of for _, width, of in found] == [True, False]
