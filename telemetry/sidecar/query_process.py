"""The query process of a sidecar: reads questions from standard input, answers on standard output, ends with its input.

python -m telemetry.sidecar.query_process STORE
"""

import logging
import os
import sys
from pathlib import Path
from typing import BinaryIO, Final

import duckdb
import msgspec

from telemetry.model.errors import StoreError
from telemetry.sidecar.logs import start_child_logging
from telemetry.sidecar.messages import LENGTH, frame
from telemetry.sidecar.query_messages import Asked, Replied, refusal
from telemetry.store.questions import BadQuestionError, answer
from telemetry.store.reader import StoreReader
from telemetry.store.without_pandas import refuse_pandas

_POLITENESS: Final = 5

_log = logging.getLogger(__name__)


def reply_to(reader: StoreReader, asked: Asked) -> Replied:
    """The reply to one question; whatever is wrong with it is a sentence, never the end of the process."""
    try:
        found = answer(reader, asked.name, asked.parameters)
        return Replied(200, msgspec.msgpack.encode(found) if asked.is_msgpack else msgspec.json.encode(found))
    except BadQuestionError as error:
        return refusal(400, str(error))
    except StoreError as error:
        return refusal(503, str(error))
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError, RecursionError, duckdb.Error) as error:
        # The next question must find the process as it is: one that cannot be answered may be about one odd turn.
        _log.warning("the question %s cannot be answered", asked.name, exc_info=error)
        return refusal(500, f"{asked.name} cannot be answered ({type(error).__name__}); see the sidecar's messages")


def serve(reader: StoreReader, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer one question after the other until there is no more."""
    while True:
        head = questions.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        content = questions.read(*LENGTH.unpack(head))
        answers.write(frame(reply_to(reader, msgspec.msgpack.decode(content, type=Asked))))
        answers.flush()


def main() -> None:
    """Serve the store that the command line names."""
    refuse_pandas()
    start_child_logging("query")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between two answers
    os.nice(_POLITENESS)
    with StoreReader(Path(sys.argv[1])) as reader:
        serve(reader, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
