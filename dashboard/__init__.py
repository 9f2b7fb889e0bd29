"""Streamlit pages over the questions of a store; they draw answers, and hold no arithmetic of their own.

Read `source` (where answers come from) and `links` (what a viewer chose), then `components/frame` (how a page asks,
draws and refreshes) and one of `pages`. `descriptions` words figures and states, `charts` draws them. `app` is the
script that Streamlit runs, by way of `script/entry`; `__main__`, `launch` and `web_server` start it.
"""
