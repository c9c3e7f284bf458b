"""Redraw every published figure from its CSV: python scripts/redraw.py"""

from pathlib import Path

from plainres.figures.redraw import redraw_published

if __name__ == "__main__":
    root = Path(__file__).parents[1] / "results" / "published"
    print(f"{len(redraw_published(root)) // 3} figures redrawn in {root}")
