"""Two runs compared figure by figure. Pure.

Read: runs (which turns), differences (metrics), figures (all figures with their intervals), verdict, sentences.
"""
