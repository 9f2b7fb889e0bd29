"""A web page for reviewing doubtful speech bounds: play, view, move and save them."""
