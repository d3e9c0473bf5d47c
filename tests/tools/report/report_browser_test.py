"""Tests a report in a browser: it draws, reports no errors, responds, and prints.

    report_browser_test.py PROGRAM RESULT.json [--browser chromium] [--screenshots FOLDER]
"""

import copy
import json
import os
import subprocess

from browser import BrowserTest, main

LENGTHS = 5
LOSS_POINTS = 50  # 500 steps, 10 to a point
# Lines, vertices of each line, and markers of each plot in order. References, here near keys and ln n, have no markers.
EXPECTED = [(4, LENGTHS, 3 * LENGTHS),  # accuracy
            (3, LENGTHS, 2 * LENGTHS),  # lead
            (6, LENGTHS, 5 * LENGTHS),  # gains: a line for each length, with the rules marked
            (4, LENGTHS, 3 * LENGTHS),  # weight on far keys
            (4, LENGTHS, 3 * LENGTHS),  # attended distance
            (5, LENGTHS, 3 * LENGTHS),  # entropy and ln n
            (4, LENGTHS, 3 * LENGTHS),  # gradient mass
            (2, LOSS_POINTS, 0)]        # loss
DRAWN = """[...document.querySelectorAll('figure')].map((figure) => {
  const lines = [...figure.querySelectorAll('.plot svg .mark-line path')];
  return [lines.length, lines.map((line) => line.getAttribute('d').match(/[ML]/g).length),
          figure.querySelectorAll('.plot svg .mark-symbol path').length];
})"""


class ReportTest(BrowserTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.arguments.result, encoding="utf-8") as file:
            cls.result = json.load(file)

    def write(self, result, name="report"):
        source, page = (os.path.join(self.folder.name, name + end) for end in (".json", ".html"))
        with open(source, "w", encoding="utf-8") as file:
            json.dump(result, file)
        subprocess.run([self.arguments.program, "report", source, "--output", page], check=True, stdout=subprocess.DEVNULL)
        return page

    def open(self, page, width=1100, **emulated):
        self.browser.emulate(width, **emulated)
        self.browser.open(page)
        self.browser.wait("document.documentElement.dataset.plots")
        return self.browser.evaluate("document.documentElement.dataset.plots")

    def open_sample(self, **emulated):
        self.assertEqual(self.open(self.write(self.result), **emulated), "drawn:8/8")

    def assert_quiet(self):
        self.assertEqual(self.browser.console, [])
        self.assertEqual([url for url in self.browser.requests if not url.startswith("file:")], [])

    def test_draws_every_number(self):
        self.open_sample()
        drawn = self.browser.evaluate(DRAWN)
        self.assertEqual(drawn, [[lines, [points] * lines, markers] for lines, points, markers in EXPECTED])
        self.assert_quiet()

    def test_fits_every_screen_in_both_schemes(self):
        for name, width, mobile in (("desktop", 1100, False), ("phone", 390, True), ("narrow", 320, True)):
            for dark in (False, True):
                self.open_sample(width=width, mobile=mobile, dark=dark, scale=2 if mobile else 1)
                self.assertEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
                too_wide = self.browser.evaluate(
                    "[...document.querySelectorAll('.plot svg')].filter((svg) => "
                    "svg.getBoundingClientRect().right > innerWidth).length")
                self.assertEqual(too_wide, 0)
                self.assert_quiet()
                if self.arguments.screenshots:
                    picture = f"{name}-{'dark' if dark else 'light'}.png"
                    self.browser.screenshot(os.path.join(self.arguments.screenshots, picture))

    def test_follows_scheme_and_width_after_it_is_drawn(self):
        self.open_sample()
        colour = ("getComputedStyle(document.querySelector('.plot .mark-line path')).stroke + "
                  "getComputedStyle(document.documentElement).backgroundColor")
        width = "document.querySelector('.plot svg').getBoundingClientRect().width"
        light, wide = self.browser.evaluate(colour), self.browser.evaluate(width)
        self.browser.emulate(390, dark=True)
        self.browser.wait(f"{width} < {wide}")
        self.assertNotEqual(self.browser.evaluate(colour), light)
        self.assertEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 390)
        self.browser.emulate(1100, dark=True, media="print")  # paper is white, whatever the screen is
        self.assertEqual(self.browser.evaluate(colour), light)
        self.assert_quiet()

    def test_answers_pointer_keys_and_legend(self):
        self.open_sample()
        tip = "document.querySelector('.tip:not([hidden])')?.textContent"
        self.browser.evaluate("document.querySelector('.plot').scrollIntoView({block: 'center'})")
        x, y = self.browser.evaluate(
            "(({right, top}) => [right - 20, top + 100])(document.querySelector('.plot').getBoundingClientRect())")
        self.browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.browser.wait(f"({tip} || '').includes('1024')")
        for text in ("standard", "42.88\u00a0±\u00a00.66", "50.30\u00a0±\u00a00.40"):
            self.assertIn(text, self.browser.evaluate(tip))
        self.browser.evaluate("document.querySelector('.plot').focus()")
        for kind in ("rawKeyDown", "keyUp"):
            self.browser.send("Input.dispatchKeyEvent", type=kind, key="ArrowLeft", code="ArrowLeft")
        self.browser.wait(f"({tip} || '').includes('47.73')")
        lines = "document.querySelector('figure').querySelectorAll('.mark-line path').length"
        self.browser.evaluate("document.querySelector('.legend button').click()")
        self.browser.wait(f"{lines} === 3")
        self.browser.evaluate("document.querySelector('.legend button').click()")
        self.browser.wait(f"{lines} === 4")
        self.assert_quiet()

    def test_contents_lead_to_every_part(self):
        headings = "document.querySelectorAll('h2').length"
        reached = ("[...document.querySelectorAll('.contents a')].filter((link) => "
                   "document.querySelector(link.hash)?.textContent === link.textContent).length")
        for width, open_, beside in ((1400, True, True), (390, False, False)):
            self.open_sample(width=width)
            self.assertGreaterEqual(self.browser.evaluate(headings), 3)
            self.assertEqual(self.browser.evaluate(reached), self.browser.evaluate(headings))
            self.assertEqual(self.browser.evaluate("document.querySelector('.contents').open"), open_)
            left = "document.querySelector('.contents').getBoundingClientRect().right <= document.querySelector('main').getBoundingClientRect().left"
            self.assertEqual(self.browser.evaluate(left), beside)
            self.assert_quiet()

    def test_numbers_and_pictures_can_be_taken_away(self):
        self.open_sample(dark=True)
        self.browser.evaluate("""(async () => {
          window.taken = [];
          HTMLAnchorElement.prototype.click = function () {
            window.taken.push(this.download);
          };
          const create = URL.createObjectURL;
          window.blobs = [];
          URL.createObjectURL = (blob) => { window.blobs.push(blob); return create(blob); };
          for (const button of document.querySelector('figure').querySelectorAll('.take button')) button.click();
        })()""")
        self.browser.wait("window.taken.length === 2")
        self.assertEqual(sorted(self.browser.evaluate("window.taken")),
                         ["accuracy-against-length.csv", "accuracy-against-length.png"])
        self.browser.evaluate("""Promise.all(window.blobs.map(async (blob) => [blob.type, blob.size, await blob.slice(0, 600).text()]))
          .then((found) => { window.found = found; }), 0""")
        self.browser.wait("window.found")
        found = {kind: (size, text) for kind, size, text in self.browser.evaluate("window.found")}
        self.assertIn('"length n, tokens"', found["text/csv"][1])
        self.assertEqual(found["text/csv"][1].count("\n") >= LENGTHS, True)
        self.assertGreater(found["image/png"][0], 5000)
        self.assert_quiet()

    def test_prints_with_every_table_open(self):
        self.open_sample(dark=True)
        folded = "document.querySelectorAll('figure details:not([open])').length"
        self.assertEqual(self.browser.evaluate(folded), 8)
        self.browser.evaluate(f"addEventListener('beforeprint', () => {{ window.foldedOnPaper = {folded}; }})")
        pdf = self.browser.pdf()
        self.assertEqual(pdf[:5], b"%PDF-")
        self.assertEqual(self.browser.evaluate("foldedOnPaper"), 0)
        self.assertEqual(self.browser.evaluate(folded), 8)
        if self.arguments.screenshots:
            with open(os.path.join(self.arguments.screenshots, "print.pdf"), "wb") as file:
                file.write(pdf)

    def test_draws_what_there_is(self):
        for missing, plots in (("loss", 7), ("entropy", 7), ("gradient_mass", 7), ("accuracy", 7),
                               ("share_beyond", 7), ("distance", 7), ("spread", 8)):
            result = copy.deepcopy(self.result)
            for rule in result["rules"]:
                rule.pop(missing, None)
            self.assertEqual(self.open(self.write(result)), f"drawn:{plots}/{plots}", missing)
            self.assert_quiet()

    def test_hostile_names_stay_text(self):
        result = copy.deepcopy(self.result)
        name = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
        result["rules"][1]["rule"] = result["command"] = name
        self.assertEqual(self.open(self.write(result)), "drawn:8/8")
        self.assertIsNone(self.browser.evaluate("window.broken"))
        self.assertIn(name, self.browser.evaluate("document.querySelector('.legend').textContent"))
        self.assert_quiet()

    def test_says_when_a_plot_fails(self):
        page = self.write(self.result)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        with open(page, "w", encoding="utf-8") as file:
            file.write(html.replace('"type":"log"', '"type":"nonsense"', 1))
        self.assertEqual(self.open(page), "drawn:7/8")
        self.assertIn("could not be drawn", self.browser.evaluate("document.querySelector('.plot').textContent"))
        self.assertNotEqual(self.browser.console, [])


if __name__ == "__main__":
    main(__doc__, "program", "result")
