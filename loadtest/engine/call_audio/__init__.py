"""The audio of calls where a run keeps it: from the hub to a process of its own, which writes the files."""
