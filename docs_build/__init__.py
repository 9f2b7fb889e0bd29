"""Builds the parts of the documentation that follow from the code; `mkdocs.yml` names the hook that adds them.

Nothing here is installed: the pages exist only in the built site, so that no copy of them can go stale.
"""
