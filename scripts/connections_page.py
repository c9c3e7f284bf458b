"""Write docs/connections.md anew: python scripts/connections_page.py"""

from pathlib import Path

from plainres.describe.page import connections_page

if __name__ == "__main__":
    page = Path(__file__).parents[1] / "docs" / "connections.md"
    page.write_text(connections_page())
    print(page)
