"""The vocabulary of a voice turn, and everything that derives from one turn alone. Pure.

Read: semconv, turns (with their dimensions), metrics; then bounds and contradictions (how well a turn was measured),
turn_spans (a turn as a span), waterfall (its trace); generator_health; services; formatting, durations, foreign_text
and file_faults (how figures and faults are written); personal_data; recent. stats and intervals are the statistics.
"""
