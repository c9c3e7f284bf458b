"""Headless Chromium for the tests of the page: Debian's package, driven by playwright, never with a network."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


@dataclass
class Tab:
    """An open page.

    Attributes:
        page: playwright's page.
        said: what its console said, and errors of its scripts.
        asked: addresses that it asked for, but its own.
    """

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def show(self, section: str) -> None:
        """Scroll to a section and wait until its chart, if it has one, is drawn."""
        self.page.evaluate("name => document.getElementById(name).scrollIntoView({behavior: 'instant'})", section)
        panel = self.page.locator(f'[data-panel="{section}"]')
        if panel.count():
            panel.locator(".main-svg").first.wait_for()

    def traces(self, panel: str) -> list[dict[str, Any]]:
        """What plotly draws in a panel: x, y and colour of each trace."""
        code = """name => document.querySelector(`[data-panel="${name}"] .plot`).data
            .map(t => ({x: t.x, y: t.y, z: t.z ?? null, line: t.line ?? null, mode: t.mode ?? t.type}))"""
        found: list[dict[str, Any]] = self.page.evaluate(code, panel)
        return found


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips the test, with the reason, where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on PATH; .ci/run installs Debian's package")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> Iterator[Tab]:
    """Open a file and wait for its first chart."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
    tab = Tab(context.new_page())
    tab.page.on("console", lambda message: tab.said.append(f"{message.type}: {message.text}"))
    tab.page.on("pageerror", lambda error: tab.said.append(str(error)))
    address = path.resolve().as_uri()
    tab.page.on("request", lambda request: request.url != address and tab.asked.append(request.url))
    tab.page.goto(address)
    tab.page.locator('[data-panel="degradation"] .main-svg').first.wait_for()
    yield tab
    context.close()
