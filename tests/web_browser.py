"""A headless Chromium (Debian's packages ``chromium`` and ``chromium-driver``) that looks at the status pages."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

SHOTS = Path(__file__).resolve().parents[1] / "build" / "web"
TIMEOUT_S = 60
WIDE, NARROW = 1400, 390
_PROGRAMS = ("chromium", "chromedriver")

#: For each visible text: the contrast with its background (WCAG 2.1, 1.4.3), where it is too small.
_POOR_CONTRAST = """
const channel = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
    if (a === 1) return [r, g, b];
  }
  return null;
};
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (texts.nextNode()) {
  const node = texts.currentNode.parentElement;
  if (!texts.currentNode.textContent.trim() || !node.checkVisibility()) continue;
  seen += 1;
  const light = [luminance(parse(getComputedStyle(node).color)), luminance(behind(node))];
  const ratio = (Math.max(...light) + 0.05) / (Math.min(...light) + 0.05);
  if (ratio < 4.5) found.push([texts.currentNode.textContent.trim(), ratio]);
}
return [seen, found];
"""


def missing() -> str:
    """Why there is no browser; empty where there is one. In CI that is a failure, elsewhere a reason to skip."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    return f"no {' and no '.join(absent)}; as root: apt-get install chromium chromium-driver" if absent else ""


class Browser:
    """One page at a time."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def open(self, url: str) -> None:
        """Show a page, and wait for its first event; earlier records are cleared.

        The page before is left first: its server may be gone, and each attempt to reconnect is a complaint.
        """
        self._driver.get("about:blank")
        self.complaints(), self.origins()
        self.dark(on=False)
        self.width(WIDE)
        self._driver.get(url)
        self.until("document.getElementById('connection').textContent === 'live'")

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a script returns."""
        return self._driver.execute_script(script, *arguments)

    def until(self, condition: str) -> None:
        """Wait for an expression to become true; report the page's text where it does not."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            WebDriverWait(self._driver, TIMEOUT_S, 0.05).until(lambda driver: self.run(f"return Boolean({condition})"))
        except TimeoutException:
            pytest.fail(f"never: {condition}\nconsole: {self.complaints()}\n{self.text('body')}")

    @contextlib.contextmanager
    def in_the_background(self) -> Iterator[None]:
        """Another tab is in front of the page meanwhile."""
        front = self._driver.current_window_handle
        self._driver.switch_to.new_window("tab")
        try:
            yield
        finally:
            self._driver.close()
            self._driver.switch_to.window(front)

    def text(self, selector: str) -> str:
        """Return the visible text of the first element."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def texts(self, selector: str) -> list[str]:
        """… of all elements."""
        return list(
            self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)", selector)
        )

    def press(self, key: str) -> None:
        """A key of the keyboard, by its name in selenium."""
        from selenium.webdriver import ActionChains, Keys

        ActionChains(self._driver).send_keys(getattr(Keys, key)).perform()

    def dark(self, *, on: bool) -> None:
        """Set the preference for a dark or light page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def width(self, pixels: int) -> None:
        """Of the window."""
        size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": pixels < 700}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def shoot(self, name: str) -> None:
        """Keep the whole page as ``build/web/NAME.png``."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        taken = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def poor_contrast(self) -> list[tuple[str, float]]:
        """Return the texts whose contrast is below 4.5, and their contrasts."""
        seen, found = self.run(_POOR_CONTRAST)
        assert seen > 20, "the page shows next to nothing"
        return [(text, ratio) for text, ratio in found]

    def complaints(self) -> list[str]:
        """Return the console's messages since the last call."""
        return [entry["message"] for entry in self._driver.get_log("browser")]

    def origins(self) -> set[str]:
        """Return the origins of the page's requests since then."""
        messages = [json.loads(entry["message"])["message"] for entry in self._driver.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        return {f"{url.scheme}://{url.netloc}" for url in map(urlsplit, asked)}


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with a fresh profile.

    It stores nothing elsewhere, requests no updates, and is gone at the end.
    """
    if why := missing():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(prefix="penstock-web-") as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for argument in (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--disable-background-networking", "--disable-component-update", "--no-first-run", "--lang=en",
            f"--user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        try:
            driver.set_page_load_timeout(TIMEOUT_S)
            driver.set_script_timeout(TIMEOUT_S)
            yield Browser(driver)
        finally:
            driver.quit()
