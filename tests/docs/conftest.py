"""One browser for all tests of pages; sizes and colors are emulated, so that a page is loaded once."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-dev-shm-usage",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "hide-scrollbars",
)

# Formulas and charts have hundreds of elements, each of the color of its text, which is checked.
AXE = """
const [rules, done] = arguments;
// Charts are emptied meanwhile: axe-core takes minutes for thousands of marks, and does not look at their colors.
const charts = [...document.querySelectorAll("svg")].filter(svg => svg.querySelectorAll("*").length > 50)
  .map(svg => [svg, [...svg.childNodes]]);
charts.forEach(([svg, marks]) => svg.replaceChildren(...marks.filter(mark => mark.nodeName === "title")));
axe.run({exclude: [["math"]]}, {runOnly: rules, resultTypes: ["violations"]}).then(found => {
  charts.forEach(([svg, marks]) => svg.replaceChildren(...marks));
  done(found.violations
    .filter(rule => ["serious", "critical"].includes(rule.impact))
    .map(rule => rule.id + ": " + rule.nodes.slice(0, 3).map(node => node.target.join(" ")).join(", ")));
});
"""
STATE = """
const [address, scheme, done] = arguments;
const root = document.documentElement;
function state(left) {  // a theme follows the preference with the next event
  if (root.dataset.theme && root.dataset.theme !== scheme && left) return setTimeout(state, 25, left - 1);
  const asked = performance.getEntriesByType("resource").map(entry => entry.name);
  const foreign = asked.filter(url => new URL(url).host && !url.startsWith(address));
  const [red] = getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g);
  done([root.scrollWidth, red > 127 ? "light" : "dark", foreign]);
}
state(200);
"""


class Screen:
    """A browser that keeps what it was told, and knows what is wrong with a page."""

    def __init__(self, driver):
        self.driver = driver
        self._axe = None

    def open(self, address):
        """Load a page; messages of earlier ones are forgotten."""
        self.driver.get_log("browser")
        self.driver.get(address)

    def show(self, width, scheme):
        """Make the screen this wide, and prefer light or dark."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def faults(self, name, host, width, scheme):
        """What is wrong at this width in this scheme: scrolling sideways, other colors, other hosts."""
        self.show(width, scheme)
        found, colors, foreign = self.driver.execute_async_script(STATE, host, scheme)
        faults = [f"{name}: {url}" for url in foreign]
        if found > width:
            faults.append(f"{name}: {found} pixels wide on a screen of {width}, {scheme}")
        if colors != scheme:
            faults.append(f"{name}: {colors} where {scheme} is preferred")
        self._keep(name, width, scheme)
        return faults

    def messages(self, name):
        """What the page wrote to the console, and what it could not load."""
        logged = self.driver.get_log("browser")
        return [f"{name}: {one['message']}" for one in logged if one["level"] in {"SEVERE", "WARNING"}]

    def findings(self, name, rules):
        """What axe-core finds serious about the page as it is shown."""
        if self._axe is None:
            package = pytest.importorskip("axe_core_python", reason="axe-core is not installed")
            self._axe = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
        # through the debugger: a page's policy may forbid scripts
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": f"window.axe || {{}};{self._axe};0"})
        return [f"{name}: {one}" for one in self.driver.execute_async_script(AXE, rules)]

    def _keep(self, name, width, scheme):
        """Write a picture of the page to build/screenshots, if DISCREET_SCREENSHOTS is set."""
        if "DISCREET_SCREENSHOTS" in os.environ:
            folder = ROOT / "build" / "screenshots"
            folder.mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(folder / f"{name.replace('/', '-')}-{width}-{scheme}.png"))


@pytest.fixture(scope="session")
def screen(tmp_path_factory):
    """A Chromium that keeps its messages."""
    if BROWSER is None or DRIVER is None:
        pytest.skip("no Chromium with its driver on this machine")
    webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    driver.set_script_timeout(300)
    yield Screen(driver)
    driver.quit()
