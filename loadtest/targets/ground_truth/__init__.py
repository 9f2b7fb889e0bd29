"""An endpoint whose answers are known to the microsecond: what the instrument is calibrated against.

It reads no annotation. The calibration speech is annotated as every corpus is, by the detector, and its callers rely on
that; where the speech truly ended the endpoint takes from the samples that reached it: an annotation that is 50 ms off
is a voice-to-voice error of 50 ms here.

It hears no words and decodes no audio. The calibration speech has digital silence around it, so a frame that is not
the one frame of silence is speech, and the number of speech frames of an utterance says which of them is the last.
"""
