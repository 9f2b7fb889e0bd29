"""The stall bench: does the true voice-to-voice lie within the stated interval, whatever holds the generator up?"""
