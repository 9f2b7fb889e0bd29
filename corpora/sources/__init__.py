"""Sources of corpora: packages, importing, synthesis and authoring.

Read `install` first, then `archives` (untrusted packages), `importing` (corpora of others) and `synthesis`.
"""
