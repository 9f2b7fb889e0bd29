"""The items of a wire of several services over TCP: messages, each with its service. Pure."""

import msgspec

from loadtest.protocols.failure import Failure


class ServiceMessage(bytes):
    """A whole message. `service` names the service that it is for, or from."""

    service: str

    @classmethod
    def of(cls, service: str, content: bytes) -> "ServiceMessage":
        """Return the message of a service."""
        message = cls(content)
        message.service = service
        return message


class ServiceLost(msgspec.Struct, frozen=True, gc=False):
    """The connection of a service has ended, or none could be opened. The next message for it opens another one.

    `reason` is a sentence, `failure` the cause. Where nothing was asked of the service any more, this is no fault.
    """

    service: str
    reason: str
    failure: Failure
