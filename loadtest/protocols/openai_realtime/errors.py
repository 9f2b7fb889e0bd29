"""The errors of OpenAI Realtime that mean more than their text."""

from typing import Final

# Errors after which the endpoint does not continue, by `type` or `code`.
FATAL_ERRORS: Final = frozenset({"session_limit_reached", "session_expired", "invalid_api_key", "insufficient_quota"})
# The endpoint had already finished or cancelled the response when our cancel arrived: a race, not an error.
LOST_RACES: Final = frozenset({"response_cancel_not_active"})
