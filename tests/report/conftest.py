"""Reports without their figures, for tests of what stands beside them."""

import pytest


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of a report's time; those of constructed networks stay."""
    monkeypatch.setattr("plainres.report.build.paper_figures", lambda tables: [])
    monkeypatch.setattr("plainres.report.build.draw_across", lambda result, pool: None)
