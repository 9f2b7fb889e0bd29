"""A small page for looking at doubtful speech bounds: hear them, see them, move them, and write them down."""
