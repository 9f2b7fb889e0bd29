"""Encrypts what waits on disk for a destination that texts are kept for.

    payload   id of the key (8 octets) | nonce (12) | AES-256-GCM of the body, whose tag covers the id and the kind, too

Nonces are random, so one key is good for 2³² records.
"""

import hashlib
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from telemetry.store.log_records import Record

_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12


class UnreadableRecordError(ValueError):
    """A record cannot be decrypted; the sentence says why."""


class RecordCipher:
    """Encrypts and decrypts the payloads of records with a key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._id = hashlib.sha256(b"voiceprobe forwarding queue\0" + key).digest()[:_ID_BYTES]

    def is_ours(self, record: Record) -> bool:
        """Whether a record was encrypted with this key."""
        return record.payload[:_ID_BYTES] == self._id

    def encrypt(self, record: Record) -> Record:
        """The record with its payload encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, record.payload, self._about(record))
        return Record(record.kind, self._id + nonce + sealed)

    def decrypt(self, record: Record) -> Record:
        """The record as it was. Raises UnreadableRecordError for another key's, and for a damaged one."""
        if not self.is_ours(record):
            raise UnreadableRecordError("it was encrypted with another key")
        nonce, sealed = record.payload[_ID_BYTES : _ID_BYTES + _NONCE_BYTES], record.payload[_ID_BYTES + _NONCE_BYTES :]
        try:
            return Record(record.kind, self._cipher.decrypt(nonce, sealed, self._about(record)))
        except (InvalidTag, ValueError) as error:
            raise UnreadableRecordError("it is damaged") from error

    def _about(self, record: Record) -> bytes:
        return self._id + bytes([record.kind])
