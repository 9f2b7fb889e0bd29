"""The dashboard's script, which Streamlit runs, from a folder of its own.

A folder `pages` next to the script that it is given would make Streamlit run each module in it as a page by itself,
outside the navigation, for viewers who open a link to a page first.
"""

import runpy

runpy.run_module("dashboard.app")
