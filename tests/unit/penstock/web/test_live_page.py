"""The page's connection to the events, run by Node.js where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

NODE = shutil.which("node")
#: A browser's objects: each EventSource is refused until the third; timers fire on the script's command.
BROWSER = """
const shown = [], timers = [], sources = [];
const box = { set textContent(text) { shown.push(text); }, get textContent() { return ""; } };
const addEventListener = (_, heard) => { box.hide = heard; };
globalThis.document = { hidden: false, getElementById: () => box, addEventListener };
globalThis.setTimeout = (run) => timers.push(run);
globalThis.clearTimeout = (number) => { delete timers[number - 1]; };
globalThis.EventSource = class {
  static CLOSED = 2;
  readyState = 2;
  heard = {};
  constructor() { sources.push(this); }
  addEventListener(name, heard) { this.heard[name] = heard; }
  close() {}
};
globalThis.fetch = async () => ({ ok: false, json: async () => ({ error: "64 watch already; close a page" }) });
const { follow } = await import(process.argv[2]);
follow(() => {});
await sources[0].heard.error();
timers.pop()();
sources[1].readyState = 0;
await sources[1].heard.error();
sources[1].heard.status({ data: "{}" });
const connected = [timers.length, sources.length];
sources[1].readyState = 2;
await sources[1].heard.error();
document.hidden = true;
box.hide();
process.stdout.write(JSON.stringify({ shown, connected, left: timers.filter(() => true).length }));
"""


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_a_page_that_was_refused_shows_the_reason_and_asks_again(tmp_path: Path) -> None:
    static = Path(str(files("penstock.web"))) / "static"
    page = (static / "live.js").read_text().replace("/static/dom.js", (static / "dom.js").as_uri())
    (tmp_path / "live.mjs").write_text(page)
    (tmp_path / "browser.mjs").write_text(BROWSER)
    assert NODE is not None
    command = [NODE, str(tmp_path / "browser.mjs"), (tmp_path / "live.mjs").as_uri()]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    old = "no answer; what is shown is old"
    why = "64 watch already; close a page; what is shown is old"
    assert said == {"shown": [old, why, old, "live", old, why], "connected": [0, 2], "left": 0}
