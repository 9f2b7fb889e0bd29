"""Process ids and sequences: unique, without gaps, new after a fork."""

import os
import threading

from telemetry.export.sdk import ProcessIdentity


def test_sequences_have_no_gaps_across_threads() -> None:
    identity = ProcessIdentity()
    given: list[int] = []

    def emit(run_id: str) -> None:
        given.extend(identity.next_turn(run_id)[1] for _ in range(500))

    threads = [threading.Thread(target=emit, args=(run_id,)) for run_id in ("a", "a", "b", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(2000))
    assert identity.emitted_by_run() == {"a": 1000, "b": 1000}


def test_two_incarnations_differ() -> None:
    assert ProcessIdentity().process_id != ProcessIdentity().process_id


def test_a_forked_child_is_another_process() -> None:
    identity = ProcessIdentity()
    identity.next_turn("run")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        process_id, sequence = identity.next_turn("run")
        os.write(writing, f"{process_id} {sequence} {identity.emitted_by_run()['run']}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    process_id, sequence, emitted = os.read(reading, 1000).decode().split()
    os.close(reading)
    os.close(writing)
    assert process_id != identity.process_id
    assert (sequence, emitted) == ("0", "1")
    assert identity.next_turn("run")[1] == 1
