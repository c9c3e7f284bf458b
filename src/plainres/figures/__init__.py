"""One function per figure: table in, Figure and the table it drew out. No statistics here."""
