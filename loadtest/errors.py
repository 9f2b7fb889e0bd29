"""Whose fault it is, in the type.

VoiceprobeError
├── UsageError            a flag, file or name that cannot be used            exit code 2
├── OutputError           a result could not be written                       exit code 1
├── EndpointError         the endpoint's side
│   └── EndpointUnreachable   nothing answers there, or it refused us         exit code 5
└── InstrumentError       our own side failed: no figure says anything    exit code 4
                          about the endpoint
"""


class VoiceprobeError(Exception):
    """Base of everything raised on purpose; the text is one sentence: what, where and how to mend it."""


class UsageError(VoiceprobeError):
    """A flag, file, URL or name cannot be used."""


class OutputError(VoiceprobeError):
    """A result could not be written although its place was found good before (a full disk)."""


class EndpointError(VoiceprobeError):
    """The endpoint is at fault."""


class EndpointUnreachable(EndpointError):  # noqa: N818 - reads as what happened
    """Nothing answers at the address, or it refused the connection, the upgrade or the credentials."""


class InstrumentError(VoiceprobeError):
    """The generator itself failed."""
