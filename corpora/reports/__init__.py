"""Reports on a corpus: tables in the terminal, and a page with pictures and audio."""
