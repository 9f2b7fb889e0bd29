"""`python -m corpora`."""

from corpora.cli import main

if __name__ == "__main__":
    main()
