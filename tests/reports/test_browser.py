"""A report in a real browser, wide and narrow. CONTRIBUTING.md says how to get the browser."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from agents.environments import EnvironmentConfig
from agents.pictures import Pictures
from ga3c.evaluation.canvas import Canvas, Moment, video
from ga3c.reports import page
from tests.commands import ROOT, wait_for

KEPT = ROOT / "benchmarks" / "results"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
PLAYS_S = 30.0  # a video begins to play within this time, however busy the machine is
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="chromium or chromedriver is not installed"
)
IN_SIGHT = """
return [...document.querySelectorAll('.ours')].flatMap(cell => {
  const table = cell.closest('table');
  return [0, table.scrollWidth].map(left => {
    table.scrollLeft = left;
    scrollBy(0, cell.getBoundingClientRect().top - innerHeight / 2);
    const box = cell.getBoundingClientRect();
    const top = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    return box.left >= 0 && box.right <= innerWidth && box.height > 10 && top === cell;
  });
});
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of kept results of three algorithms, with a video of two seconds of Pong."""
    place = tmp_path_factory.mktemp("report")
    runs = [place / name for name in ("pong", "pong-ppo", "dqn-pong")]
    for run in runs:
        shutil.copytree(KEPT / run.name / "seed-0", run)
        protocol = {"name": "paper", "policy": "sample", "sticky_actions": 0.25}
        entry = {"steps": 10**6, "protocol": protocol, "episodes": 30, "mean": 9.0}
        (run / "evaluations.jsonl").write_text(json.dumps(entry) + "\n")
    pictures = Pictures(EnvironmentConfig(game="Pong"))
    canvas, action = Canvas("Pong", pictures.actions), np.array([2], np.int32)
    likely, shown = np.full(len(pictures.actions), 1 / 6), pictures.reset(0)
    (runs[0] / "video").mkdir()
    with video(runs[0] / "video" / "1.mp4", pictures.per_second) as writer:
        for step in range(30):
            writer.append_data(canvas.draw(Moment(shown, 0.0, step, 0.1 * step, likely, 2, False)))
            shown = pictures.step(action)
    pictures.close()
    page.run(page.Config(tuple(runs), place / "report.html"))
    return place / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser: webdriver.Chrome, report: Path, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(report.as_uri())
    assert browser.execute_script("return innerWidth") == width


@pytest.mark.parametrize("width", [1200, 400])
def test_a_report_fits_the_page_and_ours_is_in_sight(
    browser: webdriver.Chrome, report: Path, width: int
) -> None:
    opened(browser, report, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    tables = browser.find_elements("tag name", "table")
    assert len(tables) == 2
    assert all(table.size["height"] > 100 and table.size["width"] <= width for table in tables)
    in_sight = browser.execute_script(IN_SIGHT)
    assert len(in_sight) == 2 * (1 + 3)  # the heading and three rows, scrolled left and right
    assert all(in_sight)
    pictures = browser.execute_script("return [...document.images].map(i => i.naturalWidth)")
    assert pictures and min(pictures) > 0
    headings = [found.text for found in browser.find_elements("css selector", "h1, h2, h3, h4")]
    assert len(set(headings)) == len(headings)


def test_the_video_of_a_report_plays(browser: webdriver.Chrome, report: Path) -> None:
    opened(browser, report, 400)
    shown = browser.find_element("tag name", "video")
    assert str(shown.get_attribute("poster")).startswith("data:image/jpeg;base64,")
    begin = "arguments[0].muted = true; return arguments[0].play().then(() => 'plays', String)"
    assert browser.execute_script(begin, shown) == "plays"
    position = "return arguments[0].currentTime"
    wait_for(lambda: browser.execute_script(position, shown) > 0.5, PLAYS_S)
    assert browser.execute_script("return arguments[0].videoWidth", shown) > 900
