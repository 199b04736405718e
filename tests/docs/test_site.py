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
LOADED = {"img": "src", "script": "src", "iframe": "src", "link": "href", "source": "src"}

#: A page that opens all others at a width, and lists by how much each is wider.
MEASURE = """<body><script>
const [pages, widths] = [%s, [360, 1280]];
(async () => {
  for (const width of widths) for (const page of pages) {
    const frame = document.createElement("iframe");
    Object.assign(frame, {width, height: 800, src: page});
    document.body.append(frame);
    await new Promise(loaded => frame.onload = loaded);
    const found = frame.contentDocument.documentElement.scrollWidth;
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
    styles = re.findall(r"url\((https?:[^)]*)\)", page.read_text(encoding="utf-8"))

    assert [url for url in elements(page).loaded + styles if urlsplit(url).netloc] == []


def test_pages__are_no_wider_than_a_telephone_and_a_laptop(tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("there is no Chromium: Debian has it as the package chromium")
    names = [name_of(page) for page in PAGES]

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/_measure":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((MEASURE % names).encode())

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
             f"--user-data-dir={tmp_path}", "--virtual-time-budget=1000000",
             f"http://127.0.0.1:{server.server_port}/_measure"],
            capture_output=True, text=True, timeout=250, check=True,
        )  # fmt: skip
        server.shutdown()

    measured = re.findall(r"(\S+) (\d+) (\d+);", done.stdout)
    assert len(measured) == 2 * len(names)
    assert [found for found in measured if int(found[2]) > int(found[1])] == []
