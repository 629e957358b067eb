"""The report page of a results folder, opened from disk in a browser without network access."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis import report
from harness.errors import UserError
from harness.machine.host import ROOT

FOLDER = ROOT / "results" / "reference-2core"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / FOLDER.name
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("orders", "*.pdf"))
    return report.write(folder)


def test_the_page_needs_no_other_file(page_path: Path) -> None:
    page = page_path.read_text()
    assert "http:" not in page.replace("http://www.w3.org", "")
    assert "https:" not in page
    assert page.count("<img") == page.count('src="data:image/png;base64,') > 5


def test_a_folder_without_tables_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make figures"):
        report.write(tmp_path)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        if "browser" in os.environ.get("REQUIRE", "").split(","):
            pytest.fail("there is no chromium")
        pytest.skip("there is no chromium")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_without_errors_and_fits_its_window(browser: object, page_path: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, offline=True)
    errors = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(request.url[:80]))
    page.goto(page_path.as_uri())
    assert errors == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    page.close()


def test_a_click_sorts_a_column_and_another_click_reverses_it(browser: object, page_path: Path) -> None:
    page = browser.new_page()
    page.goto(page_path.as_uri())
    table = page.locator("table.sortable").first
    heads = table.locator("th").all_inner_texts()
    column = heads.index("cells/s")
    button = table.locator("th").nth(column).locator("button")

    def rates() -> list[float]:
        cells = table.locator(f"tbody td:nth-child({column + 1})").all_inner_texts()
        return [float(cell.split(" ")[0].replace(",", "")) for cell in cells if cell[0].isdigit()]

    before = rates()
    button.click()
    assert rates() == sorted(before) != before
    button.click()
    assert rates() == sorted(before, reverse=True)
    page.close()
