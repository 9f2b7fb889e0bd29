"""What is kept of a rollout between two steps, on disk: the log of its verdicts, and the last change of shares."""

from pathlib import Path
from typing import Final, Self

import msgspec

from loadtest.rollout.steps import ChangeShare, ChangeState, KeptChange, KeptRollout
from telemetry.model.errors import StoreError
from telemetry.rollout.gate import GateVerdict
from telemetry.rollout.plan import RolloutPlan
from telemetry.store.private_files import fsync_directory, write_durably
from telemetry.store.rollout_log import RolloutLog

CHANGE_NAME: Final = "share.json"


class RolloutKeeper:
    """The one writer of a rollout's log. Raises StoreError where another process writes it, where it was changed by
    others, and when the disk refuses: then nothing was kept."""

    def __init__(self, folder: Path, plan: RolloutPlan, plan_text: str, now_unix_ns: int) -> None:
        self._plan = plan
        self._log = RolloutLog(folder, plan, plan_text, now_unix_ns)
        self._change_file = self._log.folder / CHANGE_NAME
        try:
            self._change = self._read_change()
        except StoreError:
            self._log.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._log.close()

    @property
    def kept(self) -> KeptRollout:
        """What is known now."""
        return KeptRollout(self._log.history, self._log.moves, self._change)

    def keep_verdict(self, verdict: GateVerdict) -> None:
        """Keep a verdict before anybody acts upon it."""
        self._log.append(self._plan, verdict)

    def keep_change(self, change: ChangeShare, state: ChangeState, now_unix_ns: int) -> None:
        """Keep that a change is about to be made, was made, or failed."""
        kept = KeptChange(
            stage=None if change.is_back else change.stage.name,
            share=change.share,
            state=state,
            at_unix_ns=now_unix_ns,
            after_looks=len(self._log.history.looks),
        )
        temporary = self._change_file.with_suffix(".tmp")
        try:
            write_durably(temporary, msgspec.json.encode(kept))
            temporary.replace(self._change_file)
            fsync_directory(self._change_file.parent)
        except OSError as error:
            raise StoreError(
                f"{self._change_file}: cannot be written ({error.strerror}); no share is changed before it is"
            ) from error
        self._change = kept

    def keep_begin(self, stage: str, now_unix_ns: int) -> None:
        """Keep that a stage begins with the turns from now on."""
        self._log.move(stage, now_unix_ns)

    def _read_change(self) -> KeptChange | None:
        try:
            return msgspec.json.decode(self._change_file.read_bytes(), type=KeptChange)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"{self._change_file}: cannot be read ({error.strerror}); check its permissions"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self._change_file}: does not hold the last change of shares ({error}); restore it, or remove it "
                "once the share in effect is that of the stage"
            ) from error
