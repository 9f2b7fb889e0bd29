"""How the messages of a protocol travel over one byte stream: framings, sans-I/O."""
