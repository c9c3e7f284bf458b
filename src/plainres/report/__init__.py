"""The local report of a study: tables, figures and a summary, from the files alone."""
