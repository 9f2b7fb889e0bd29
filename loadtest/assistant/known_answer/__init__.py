"""An endpoint whose answers are known to the microsecond: what the instrument is calibrated against.

It hears no words and decodes no audio. The calibration speech has digital silence around it, so a frame that is not
the one frame of silence is speech, and the number of speech frames of an utterance says which of them is the last.
"""
