"""The script that Streamlit runs, in a folder of its own so that nothing else of ours is on its path."""
