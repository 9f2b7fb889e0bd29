"""`python -m loadtest.targets.ground_truth`."""

from loadtest.targets.ground_truth.command import main

if __name__ == "__main__":
    main()
