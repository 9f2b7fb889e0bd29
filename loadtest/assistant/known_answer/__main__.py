"""`python -m loadtest.assistant.known_answer`."""

from loadtest.assistant.known_answer.command import main

if __name__ == "__main__":
    main()
