"""The report page: one self-contained HTML file. Text and tables are written here, charts drawn in the browser."""
