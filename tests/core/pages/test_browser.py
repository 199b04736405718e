"""The page in a browser: narrow, dark, on paper, and without a network."""

import json
import os
import re
import shutil
import subprocess

import pytest

import summaries
from lpe_dask.pages import report_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser is installed, of {', '.join(NAMES)}"
)

#: Of a page around the page, 360 px wide: what is wider, and the color of the background.
MEASURE = """<!DOCTYPE html><body><iframe id="page" width="360" height="640"></iframe>
<pre id="found"></pre><script>
const source = SOURCE, frame = document.getElementById("page");
frame.onload = () => {
  const inside = frame.contentDocument, width = frame.contentWindow.innerWidth;
  inside.querySelectorAll("details").forEach(details => details.open = true);
  const wide = [...inside.querySelectorAll("body *")].filter(element =>
    !element.closest(".wide") && !element.closest("svg *")
    && element.getBoundingClientRect().right > width + 0.5);
  const style = frame.contentWindow.getComputedStyle(inside.body);
  document.getElementById("found").textContent = JSON.stringify({
    wide: wide.map(element => element.outerHTML.slice(0, 200)),
    width: width, scroll: inside.documentElement.scrollWidth,
    back: style.backgroundColor, ink: style.color,
    scripts: inside.scripts.length, title: inside.title,
  });
};
frame.srcdoc = source;
</script></body>"""


@pytest.fixture
def browse(tmp_path):
    """Run the browser with an empty profile and no way to the network."""

    def run(*options):
        profile = tmp_path / f"profile-{len(list(tmp_path.iterdir()))}"
        command = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", *options,
        ]  # fmt: skip
        home = os.environ | {"HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, timeout=120, env=home)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()

    return run


def measured(browse, tmp_path, name, *options):
    page = report_page(getattr(summaries, name)())
    source = json.dumps(page.encode(errors="replace").decode()).replace("</", r"<\/")
    wrapper = tmp_path / f"{name}.html"
    wrapper.write_text(MEASURE.replace("SOURCE", source))
    dumped = browse(*options, "--dump-dom", wrapper.as_uri())
    found = re.search('<pre id="found">(.+?)</pre>', dumped, re.DOTALL)
    assert found, "the page did not load"
    text = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text)


@pytest.mark.parametrize("name", ["drifting", "hostile"])
def test_report_page__at_360_px_is_no_wider_than_the_screen(browse, tmp_path, name):
    found = measured(browse, tmp_path, name)
    assert found["width"] == 360
    assert found["wide"] == []
    assert found["scroll"] == 360
    assert found["scripts"] == 0


def test_report_page__is_dark_where_that_is_preferred(browse, tmp_path):
    light = measured(browse, tmp_path, "ordinary")
    dark = measured(browse, tmp_path, "ordinary", "--blink-settings=preferredColorScheme=0")
    assert (light["back"], light["ink"]) == ("rgb(255, 255, 255)", "rgb(26, 26, 26)")
    assert (dark["back"], dark["ink"]) == ("rgb(22, 22, 22)", "rgb(232, 232, 232)")


def test_report_page__prints_and_asks_for_nothing_but_itself(browse, tmp_path):
    page, pdf, log = (tmp_path / name for name in ("page.html", "page.pdf", "log.json"))
    page.write_bytes(report_page(summaries.hostile(10)).encode(errors="replace"))
    browse(
        f"--log-net-log={log}", f"--print-to-pdf={pdf}", "--no-pdf-header-footer",
        page.as_uri(),
    )  # fmt: skip
    assert pdf.read_bytes().startswith(b"%PDF-")
    # The browser itself may look for updates; the hostile names lead to one address.
    assert "example.org" not in log.read_text(errors="replace")


def test_report_page__runs_and_loads_nothing_that_got_into_it(browse, tmp_path):
    """Even if a name were not escaped; the styles of the page itself are allowed."""
    page, bare = tmp_path / "page.html", tmp_path / "bare.html"
    text = report_page(summaries.drifting())
    smuggled = "<script>document.title = 'ran'</script><svg onload='document.title = 1'/>"
    page.write_text(text.replace("</main>", f"{smuggled}</main>"))
    dumped = browse("--dump-dom", page.as_uri())
    page.write_text(text)
    bare.write_text(re.sub("<meta http-equiv.*?>", "", text))
    shots = []
    for each in (page, bare):
        shot = each.with_suffix(".png")
        browse(f"--screenshot={shot}", "--window-size=900,2400", each.as_uri())
        shots.append(shot.read_bytes())

    assert re.findall("<title>(.*?)</title>", dumped) == re.findall(
        "<title>(.*?)</title>", text
    )
    assert shots[0] == shots[1]
