"""What waits on disk for a destination that texts are kept for can be read with its key alone."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from telemetry.sidecar.forwarding.encryption import RecordCipher, UnreadableRecordError
from telemetry.store.log_records import Record

KEY = bytes(range(32))
SPOKEN = Record(1, b"my card is 4111 1111 1111 1111")


@given(st.integers(0, 255), st.binary(max_size=2000))
def test_a_record_comes_back_and_cannot_be_read_meanwhile(kind: int, payload: bytes) -> None:
    cipher = RecordCipher(KEY)
    encrypted = cipher.encrypt(Record(kind, payload))
    assert cipher.decrypt(encrypted) == (kind, payload)
    assert len(payload) < 8 or payload not in encrypted.payload


def test_the_same_record_is_never_encrypted_alike() -> None:
    cipher = RecordCipher(KEY)
    assert cipher.encrypt(SPOKEN) != cipher.encrypt(SPOKEN)


def test_it_is_aes_gcm_as_others_understand_it() -> None:
    payload = RecordCipher(KEY).encrypt(SPOKEN).payload
    assert AESGCM(KEY).decrypt(payload[8:20], payload[20:], payload[:8] + b"\1") == SPOKEN.payload


def test_another_key_is_named_as_the_cause() -> None:
    encrypted = RecordCipher(bytes(32)).encrypt(SPOKEN)
    assert not RecordCipher(KEY).is_ours(encrypted)
    with pytest.raises(UnreadableRecordError, match="another key"):
        RecordCipher(KEY).decrypt(encrypted)


@pytest.mark.parametrize("place", [8, 19, 20, 30, -1])
def test_any_changed_octet_is_noticed(place: int) -> None:
    cipher = RecordCipher(KEY)
    payload = bytearray(cipher.encrypt(SPOKEN).payload)
    payload[place] ^= 1
    with pytest.raises(UnreadableRecordError, match="damaged"):
        cipher.decrypt(Record(1, bytes(payload)))


@pytest.mark.parametrize("length", [0, 7, 8, 19, 20, 35])
def test_a_cut_record_and_one_of_another_kind_are_noticed(length: int) -> None:
    cipher = RecordCipher(KEY)
    encrypted = cipher.encrypt(SPOKEN)
    with pytest.raises(UnreadableRecordError):
        cipher.decrypt(Record(1, encrypted.payload[:length]))
    with pytest.raises(UnreadableRecordError):
        cipher.decrypt(Record(2, encrypted.payload))
