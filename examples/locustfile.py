"""Your own locustfile: voiceprobe's callers, and a user that checks another part of the service meanwhile.

    .venv/bin/locust -f examples/locustfile.py --headless --users 10 --run-time 1m --host ws://127.0.0.1:8765/v1/realtime

One user of the other kind runs with the voice callers, however many of those there are.
"""

from locust import HttpUser, constant_pacing, task

from loadtest.swarm import flags
from loadtest.swarm.users import VoiceUser

__all__ = ["HealthWatcher", "VoiceUser", "flags"]


class HealthWatcher(HttpUser):
    """Asks for the health page every five seconds while the callers talk."""

    fixed_count = 1
    wait_time = constant_pacing(5)

    @task
    def healthz(self) -> None:
        """One request; it is a row of Locust's statistics, like the stages of the calls."""
        # A full address, because --host is the callers' endpoint.
        self.client.get("http://127.0.0.1:8080/healthz")
