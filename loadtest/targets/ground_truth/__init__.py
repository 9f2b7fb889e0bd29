"""An endpoint whose answers are known to the microsecond, used to calibrate the measuring instrument.

It does not read annotations. The calibration speech is annotated by the detector, like every corpus, and the callers
rely on that annotation. The endpoint takes the true end of speech from the samples that it received, so an annotation
that is 50 ms off shows up as a voice-to-voice error of 50 ms.

It recognizes no words and decodes almost no audio. The calibration speech is surrounded by digital silence, so every
frame that differs from the one silent frame is speech, and the number of speech frames in an utterance identifies the
last one.
"""
