"""Tests every kind of page on a desktop and a phone, in light and dark mode.

    report_pages_test.py ISENTROPE DATA RESULTS [--browser chromium] [--screenshots FOLDER]

DATA has the result of an extrapolation, RESULTS those of the study, of make bench and of a training that was watched.
"""

import json
import os
import struct
import subprocess
import zlib
from pathlib import Path

from browser import BrowserTest, main

SCREENS = {"desktop": (1400, 1, False), "phone": (390, 2, True)}  # width, device pixels to each, touch
FITS = """[document.documentElement.scrollWidth <= document.documentElement.clientWidth,
  [...document.querySelectorAll('.plot svg')].filter((svg) => svg.getBoundingClientRect().right > innerWidth).length]"""
# Whether the contents are open, and whether they are beside the text; null if the page has none.
CONTENTS = """(([contents, main]) => contents && [contents.open, contents.getBoundingClientRect().width > 0 &&
  contents.getBoundingClientRect().right <= main.getBoundingClientRect().left])(
  [document.querySelector('.contents'), document.querySelector('main')])"""


# Colours of plot text with too little contrast to the page.
UNREADABLE = """(() => {
  const brightness = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + part / 765, 0);
  const page = brightness(getComputedStyle(document.documentElement).backgroundColor);
  return [...document.querySelectorAll('.plot svg text')].map((text) => getComputedStyle(text).fill)
    .filter((colour) => Math.abs(brightness(colour) - page) < 0.25);
})()"""
# Counts for each figure: rectangles, lines, and different colours of the rectangles.
DRAWN = """[...document.querySelectorAll('figure')].map((figure) => {
  const cells = [...figure.querySelectorAll('.plot svg .mark-rect.role-mark path')];
  return [cells.length, figure.querySelectorAll('.plot svg .mark-line path').length,
          new Set(cells.map((cell) => cell.getAttribute('fill'))).size];
})"""


def picture(png):
    """Returns the width of a PNG of 8 bits a channel, and the brightness of its first, unfiltered pixel: 0 to 1."""
    position, data = 8, b""
    while position < len(png):
        length, kind = struct.unpack(">I4s", png[position : position + 8])
        if kind == b"IDAT":
            data += png[position + 8 : position + 8 + length]
        position += 12 + length
    return struct.unpack(">I", png[16:20])[0], sum(zlib.decompress(data)[1:4]) / (3 * 255)


class PagesTest(BrowserTest):
    def page(self, name, *command):
        page = os.path.join(self.folder.name, f"{name}.html")
        subprocess.run([*command, "--output", page], check=True, stdout=subprocess.DEVNULL)
        return page

    def see(self, page, screen, dark):
        """Opens the page, checks the requirements of every page, and returns its picture."""
        width, scale, mobile = SCREENS[screen]
        self.browser.emulate(width, dark=dark, mobile=mobile, scale=scale)
        self.browser.open(page)
        self.browser.wait("document.documentElement.dataset.plots")
        drawn, plots = self.browser.evaluate("document.documentElement.dataset.plots").removeprefix("drawn:").split("/")
        self.assertEqual(drawn, plots)
        self.assertGreater(int(plots), 0)
        self.assertEqual(self.browser.evaluate(FITS), [True, 0])
        self.assertEqual(self.browser.evaluate(UNREADABLE), [])
        parts = self.browser.evaluate("document.querySelectorAll('h2').length")
        self.assertEqual(self.browser.evaluate(CONTENTS), [screen == "desktop"] * 2 if parts >= 3 else None)
        self.assertEqual(self.browser.console, [])
        path = os.path.join(self.arguments.screenshots or self.folder.name,
                            f"{Path(page).stem}-{screen}-{'dark' if dark else 'light'}.png")
        self.browser.screenshot(path)
        return Path(path).read_bytes()

    def assert_can_be_read(self, page):
        for screen, (width, scale, _) in SCREENS.items():
            light, dark = (self.see(page, screen, dark) for dark in (False, True))
            self.assertEqual([picture(light)[0], picture(dark)[0]], [width * scale] * 2, screen)
            self.assertGreater(picture(light)[1], 0.9, screen)
            self.assertLess(picture(dark)[1], 0.2, screen)

    def test_an_extrapolation(self):
        result = Path(self.arguments.data, "extrapolation_result.json")
        self.assert_can_be_read(self.page("extrapolation", self.arguments.isentrope, "report", result))

    def test_the_study(self):
        page = self.page("study", self.arguments.isentrope, "report", Path(self.arguments.results, "study.json"))
        self.assert_can_be_read(page)
        self.assertGreater(self.browser.evaluate("document.querySelectorAll('.contents a').length"), 10)
        first = "document.querySelector('figure').compareDocumentPosition(document.querySelector('h2'))"
        self.assertEqual(self.browser.evaluate(first), 4, "the overview stands before the first cell")

    def test_speeds(self):
        self.assert_can_be_read(self.page("bench", self.arguments.isentrope, "report", Path(self.arguments.results, "bench.json")))

    def test_a_training(self):
        """The log of a run of two layers of four heads: heads by steps, and a line a layer."""
        runs = json.loads(Path(self.arguments.results, "qk-clip.json").read_text())["runs"]
        log = Path(self.folder.name, "attention.jsonl")
        log.write_text("".join(json.dumps(row) + "\n" for row in runs[0]["rows"]))
        self.assert_can_be_read(self.page("training", self.arguments.isentrope, "report", log))
        heads, steps = 8, len({row["step"] for row in runs[0]["rows"]})
        drawn = self.browser.evaluate(DRAWN)
        self.assertEqual([figure[:2] for figure in drawn], [[heads * steps, 0]] * 3 + [[0, 2]] * 2)
        self.assertTrue(all(colours > 10 for _, _, colours in drawn[:3]), drawn)

    def test_the_laws(self):
        self.assert_can_be_read(self.page("theory", self.arguments.isentrope, "theory", "report"))


if __name__ == "__main__":
    main(__doc__, "isentrope", "data", "results")
