"""The parts of the documentation that follow from the code; a hook in `mkdocs.yml` adds them to the site.

Read `pages` first: each page is a template in `templates`, and the modules next to it make the tables for its marks.
This package is not installed, and the pages exist only in the built site, so no copy of them can become outdated.
"""
