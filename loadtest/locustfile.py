"""A locustfile for plain Locust: `locust -f loadtest/locustfile.py --host ws://HOST/v1/realtime`, web UI included."""

from loadtest.swarm import flags
from loadtest.swarm.users import VoiceUser

__all__ = ["VoiceUser", "flags"]
