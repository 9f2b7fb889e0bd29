"""Hand labels of where speech starts and ends: which clips, from where, and the pictures they are labeled from."""
