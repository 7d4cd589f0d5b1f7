"""One Chromium for the tests that open pages in it."""

import os
import shutil

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None and os.environ.get("CI") != "true":
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=120_000)
        yield opened
        opened.close()
