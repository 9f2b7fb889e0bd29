"""Runs the reference voice assistant: `python -m loadtest.targets.assistant`."""

import os

# Set before numpy is loaded: its computations are small, and its threads would only delay sending audio.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from loadtest.targets.assistant.command import main

if __name__ == "__main__":
    main()
