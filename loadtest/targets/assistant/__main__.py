"""`python -m loadtest.targets.assistant`: the reference voice assistant as a process of its own."""

import os

# Before numpy is loaded: comparisons are small, and threads of its own would only disturb the sending of audio.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from loadtest.targets.assistant.command import main

if __name__ == "__main__":
    main()
