"""Opens a page in headless chromium, on a screen of a given width, and measures what a person would see."""

import html
import json
import re
import shutil
import subprocess

import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
)  # fmt: skip

# Text and the colour behind it, as WCAG 2 defines their contrast; and what is wider than the screen.
MEASURE = """
const rgb = colour => colour.match(/[\\d.]+/g).map(Number);
const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
function behind(node) {
  for (let e = node; e; e = e.parentElement) {
    const colour = rgb(getComputedStyle(e).backgroundColor);
    if (colour.length < 4 || colour[3] > .99) return colour;
  }
  return [255, 255, 255];
}
const all = [...document.querySelectorAll('body *')];
let worst = [99, ''];
for (const e of all) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest('title')) continue;
  const style = getComputedStyle(e), ink = rgb(e.closest('svg') ? style.fill : style.color);
  if (style.display === 'none' || ink[3] === 0) continue;
  const [a, b] = [light(ink), light(behind(e))], ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < worst[0]) worst = [ratio, e.textContent.trim().slice(0, 60)];
}
function scrolls(e) {
  for (let p = e.parentElement; p; p = p.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX)) return true;
  return false;
}
const drawn = [...document.querySelectorAll('svg text')].filter(t => {
  const r = t.getBoundingClientRect(), p = (t.closest('.panel') || document.body).getBoundingClientRect();
  return !scrolls(t.closest('svg')) && r.width && (r.left < p.left - 1 || r.right > p.right + 1);
});
const right = e => e.getBoundingClientRect().right;
const outside = all.filter(e => !e.closest('svg') && !scrolls(e) && right(e) > innerWidth + 1);
const scrollers = [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1);
parent.postMessage({name: location.pathname.split('/').pop(), found: {
  width: innerWidth, scroll: document.documentElement.scrollWidth,
  outside: outside.map(e => e.outerHTML.slice(0, 90)), contrast: worst[0], faintest: worst[1],
  scrolling: scrollers.length, unreachable: scrollers.filter(e => e.tabIndex !== 0).length,
  cut: drawn.map(t => t.textContent), dark: matchMedia('(prefers-color-scheme: dark)').matches}}, '*');
"""
GATHER = """
const all = {};
onmessage = event => { all[event.data.name] = event.data.found;
  document.getElementById('found').textContent = JSON.stringify(all); };
"""


def run_browser(folder, path, *options):
    command = ["chromium", *OPTIONS, f"--user-data-dir={folder / 'profile'}", *options, f"file://{path}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def measure(folder, pages, width=360, dark=False):
    """Returns, by name, what is measured on a screen of that width.

    A window cannot be so narrow, but a frame can. The policy of the pages forbids scripts, so it is removed.
    """
    frames = ""
    for name, page in pages.items():
        loose = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        loose = loose.replace("</body>", f"<script>{MEASURE}</script></body>")
        (folder / name).write_text(loose, encoding="utf-8")
        frames += f'<iframe src="{name}" style="width:{width}px;height:900px;border:0"></iframe>'
    outer = folder / "frames.html"
    outer.write_text(f'<!DOCTYPE html><script>{GATHER}</script><body><p id="found"></p>{frames}</body>')
    theme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    options = (theme, "--virtual-time-budget=9000", f"--window-size={max(width, 1400)},900", "--dump-dom")
    done = run_browser(folder, outer, *options)
    found = re.search(r'id="found">(\{.*?\})</p>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(html.unescape(found[1]))
