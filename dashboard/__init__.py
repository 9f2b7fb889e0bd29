"""Streamlit pages that query a store and draw its answers; they compute no figures themselves.

Read `source` (where answers come from) and `links` (the viewer's selection), then `components/frame` (how a page
queries, draws and refreshes) and one of `pages`. `descriptions` turns figures and states into text, `charts` draws
them. `app` is the script that Streamlit runs, through `script/entry`; `__main__`, `launch` and `web_server` start it.
"""
