"""The section `[keep]`, as a pydantic model."""

from loadtest.scenario.file import fields
from loadtest.scenario.file.fields import DurationField, TomlTable
from loadtest.scenario.file.keep import KeptParts


class KeepTable(TomlTable):
    """What is kept of calls beside the store."""

    audio: bool | None = fields.flag()
    text: bool | None = fields.flag()
    time: DurationField | None = fields.duration()

    def kept(self) -> KeptParts:
        """The section as settings."""
        return KeptParts(self.audio, self.text, self.time)
