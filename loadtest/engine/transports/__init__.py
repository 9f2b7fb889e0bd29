"""What carries the messages of a call: one connection with a framing, or a pool of them."""
