# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser (headless Chromium): wide and narrow, light and dark. Skipped without Chromium.

GEMMD_REPORT_SHOTS=FOLDER keeps the pictures, to be looked at.
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

import pytest

from conftest import BUILD, PATIENCE, ROOT, RUNNER, SYNTHETIC, gemm

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LANDSCAPES = BUILD / "tests" / "data" / "landscapes_fresh"
KEYS = 100000
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")

# What is wrong with the page, in words; an empty list is a good page.
FAULTS = """(() => {
  const faults = [], width = document.documentElement.clientWidth;
  const rgb = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = color => rgb(color).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort(); return (Math.max(x, y) + .05) / (Math.min(x, y) + .05); };
  const back = getComputedStyle(document.body).backgroundColor;
  if (document.documentElement.scrollWidth > width)
    faults.push('the page is ' + document.documentElement.scrollWidth + ' wide in a window of ' + width);
  for (const e of document.querySelectorAll('p, td, h1, h2, h3, a, figcaption, .tiles div')) {
    if (contrast(getComputedStyle(e).color, back) < 4.5) faults.push('pale: ' + e.textContent.slice(0, 40));
    const box = e.getBoundingClientRect();
    if (!e.closest('.scroll') && box.right > width + 1) faults.push('cut at the right: ' + e.textContent.slice(0, 40));
  }
  for (const svg of document.querySelectorAll('svg.plot')) {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    for (const e of svg.querySelectorAll('text, circle, rect')) {
      const at = e.getBoundingClientRect();
      if (at.left < box.left - 2 || at.right > box.right + 2 || at.top < box.top - 2 || at.bottom > box.bottom + 2)
        faults.push('outside its drawing: ' + e.outerHTML.slice(0, 80));
      if (e.tagName == 'text' && contrast(getComputedStyle(e).fill, back) < 3) faults.push('pale: ' + e.textContent);
      if (e.tagName == 'text' && parseFloat(getComputedStyle(e).fontSize) * scale < 9.5) faults.push('tiny: ' + e.textContent);
    }
  }
  return {faults, back: light(back), plots: document.querySelectorAll('svg.plot').length};
})()"""


class Browser:
    """Chromium over its debugging pipe: file descriptor 3 takes commands, 4 gives answers, each ended by a zero."""

    def __init__(self, folder):
        (command_end, self.commands), (self.answers, answer_end) = os.pipe(), os.pipe()
        shell = f'exec "$@" 3<&{command_end} 4>&{answer_end} {command_end}<&- {answer_end}>&-'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "-", CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", f"--user-data-dir={folder}"], pass_fds=(command_end, answer_end),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_end)
        os.close(answer_end)
        self.id, self.rest, self.session, self.requests = 0, b"", None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Network.enable")
        self.call("Page.enable")
        self.call("Emulation.setScrollbarsHidden", hidden=True)

    def read(self, seconds=60):
        """The next message; None when none came."""
        until = time.monotonic() + seconds * PATIENCE
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], max(0, until - time.monotonic()))[0]:
                return None
            data = os.read(self.answers, 1 << 20)
            assert data, "Chromium ended"
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message

    def call(self, method, **params):
        self.id += 1
        message = {"id": self.id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self.read()) is None or answer.get("id") != self.id:
            assert answer is not None, f"Chromium does not answer {method}"
        assert "error" not in answer, answer
        return answer["result"]

    def look(self, path, width, scheme):
        """What FAULTS says of the page; checks that the page asked for nothing but itself."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.requests.clear()
        self.call("Page.navigate", url=f"file://{path}")
        while (message := self.read()) and message.get("method") != "Page.loadEventFired":
            pass
        assert message and self.requests == [f"file://{path}"]
        seen = self.call("Runtime.evaluate", expression=FAULTS, returnByValue=True)
        assert "exceptionDetails" not in seen, seen
        if folder := os.environ.get("GEMMD_REPORT_SHOTS"):
            shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
            pathlib.Path(folder, f"{path.stem}-{width}-{scheme}.png").write_bytes(base64.b64decode(shot))
        return seen["result"]["value"]

    def close(self):
        os.close(self.commands)
        os.close(self.answers)
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    b = Browser(tmp_path_factory.mktemp("chromium"))
    yield b
    b.close()


def check(browser, d, path, plots):
    d.ctl("report", "--html", path, env={"GEMMD_MODELS": str(ROOT / "python" / "gemmd" / "models.csv")})
    for width in (390, 1280):
        for scheme in ("light", "dark"):
            seen = browser.look(path, width, scheme)
            assert seen["faults"] == [], (width, scheme)
            assert seen["plots"] == plots
            assert (seen["back"] > 0.5) == (scheme == "light")


def test_an_empty_page(browser, daemon, folder):
    check(browser, daemon(), folder / "empty.html", 0)


def test_a_replayed_h200_with_a_few_tuned_keys(browser, daemon, folder):
    recording = folder / "h200.jsonl"
    files = sorted(LANDSCAPES.glob("gpt-oss-20b*.jsonl"))
    recording.write_text(files[0].read_text().split("\n", 1)[0] + "\n" +
                         "".join(f.read_text().split("\n", 1)[1] for f in files))
    d = daemon(f"replay:{recording}")
    d.ctl("tune", "--moe", "gpt-oss-20b", "--tokens", "512,4096", check=False,  # some are not recorded
          env={"GEMMD_MODELS": str(ROOT / "python" / "gemmd" / "models.csv")})
    with d.connect() as c:
        c.call("put", problem={"op": "custom:wide", "name": "x" * 300}, config={"long": "y" * 300}, time_us=3)
    assert d.status()["keys"] == 9
    check(browser, d, folder / "h200.html", 2 + 2 * 4)


def test_a_hundred_thousand_keys(browser, daemon, folder):
    d = daemon()
    assert d.stop() == 0
    filled = folder / "filled.db"
    subprocess.run([BUILD / "tests" / "bench" / "serving" / "serving_fill", RUNNER, SYNTHETIC, filled, str(KEYS)], check=True)
    shutil.copyfile(filled, d.database)
    d.start()
    with d.connect() as c:
        c.call("get", problem=gemm(), budget=30)
    check(browser, d, folder / "large.html", 2 + 2)
    assert (folder / "large.html").stat().st_size < 20 << 20
    assert f">{KEYS + 1}<" in (folder / "large.html").read_text()
