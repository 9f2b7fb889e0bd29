"""The settings of a sidecar: `settings` lists them, `reading` finds them in the file, the environment and the flags,
`building` makes options of them, and `printing` shows them."""
