"""Hand labels of where speech starts and ends: the choice of clips, their sources, pictures, labels and report."""
