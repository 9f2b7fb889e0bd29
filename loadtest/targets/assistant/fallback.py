"""The rule-based answer when the model does not answer in time, so that the caller always gets a reply."""

from typing import Final

_BY_WORD: Final = (
    (("weather", "rain", "forecast"), "I cannot reach the forecast right now. Please ask me again in a moment."),
    (("light", "lights", "lamp", "heating"), "I could not switch that yet. I will try it again shortly."),
    (("alarm", "timer", "remind"), "I have not been able to set that yet. Please ask me once more."),
    (("stop", "cancel"), "Alright, stopped."),
)
_OTHERWISE: Final = "I am sorry, that takes longer than it should. Please try again in a moment."


def rule_answer(question: str) -> str:
    """Return a rule's answer to a question; there is always one."""
    words = set(question.lower().replace("?", " ").replace(".", " ").replace(",", " ").split())
    return next((answer for triggers, answer in _BY_WORD if words.intersection(triggers)), _OTHERWISE)
