"""The conversation history for the language model."""

from loadtest.targets.assistant.session import HISTORY_TURNS, History


def test_a_deleted_item_is_removed_and_the_rest_stays_in_order() -> None:
    history = History()
    for item_id, role, text in (
        (None, "user", ""),
        ("a", "assistant", "Hello"),
        ("b", "user", "one"),
        ("c", "assistant", "1"),
    ):
        history.add(item_id, role, text)
    history.forget("b")
    history.forget("nothing")
    assert history.messages() == (("user", ""), ("assistant", "Hello"), ("assistant", "1"))


def test_only_the_last_turns_are_kept() -> None:
    history = History()
    for number in range(3 * HISTORY_TURNS):
        history.add(f"u{number}", "user", str(number))
        history.add(f"a{number}", "assistant", str(number))
    assert len(history.messages()) == 2 * HISTORY_TURNS
    assert history.messages()[-1] == ("assistant", str(3 * HISTORY_TURNS - 1))
