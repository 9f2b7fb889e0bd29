"""Records signatures and TwiML made by the providers' packages: `python record_telephony_packages.py OUT.json`.

It runs where the packages `twilio` and `plivo` are installed. Nothing here comes from this project.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

from plivo.utils.signature_v3 import construct_get_url, construct_post_url, get_signature_v3
from twilio.request_validator import RequestValidator
from twilio.twiml.voice_response import Connect, Start, VoiceResponse

TOKEN = "12345"
FORM = {
    "AccountSid": "AC00000000000000000000000000000000",
    "CallSid": "CA0af7651916cd43dd8448eb211c80319c",
    "From": "+15005550006",
    "To": "+15005550001",
    "Direction": "inbound",
    "Umlaut": "Grüße",
    "a": "lower case sorts last",
}
URLS = (
    "https://agent.example/voice",
    "https://agent.example/voice?tenant=a%20b&x=1",
    "wss://agent.example/media",
    "wss://agent.example:8443/media/",
)
NONCE = "0af7651916cd43dd8448eb211c80319c"


def documents() -> dict[str, str]:
    plain = VoiceResponse()
    connect = Connect()
    stream = connect.stream(url="wss://agent.example/media")
    stream.parameter(name="customer", value='Ada & "Bob" <x>')
    stream.parameter(name="tier", value="gold")
    plain.append(connect)

    after = VoiceResponse()
    after.say("Welcome")
    after.pause(length=1)
    greeted = Connect()
    greeted.stream(url="wss://agent.example/media", name="agent", track="inbound_track")
    after.append(greeted)
    after.hangup()

    refused = VoiceResponse()
    refused.reject(reason="busy")

    listening = VoiceResponse()
    start = Start()
    start.stream(url="wss://agent.example/media")
    listening.append(start)
    listening.say("Hello")

    return {"connect": str(plain), "after": str(after), "reject": str(refused), "start": str(listening)}


def main(out: str) -> None:
    version = importlib.metadata.version
    validator = RequestValidator(TOKEN)
    twilio = [
        {"url": url, "form": form, "signature": validator.compute_signature(url, form)}
        for url in URLS
        for form in ({}, FORM)
    ]
    plivo = [
        {
            "url": url,
            "nonce": NONCE,
            "signature": get_signature_v3(TOKEN.encode(), construct_get_url(url, {}).decode(), NONCE).decode(),
        }
        for url in (*URLS, "wss://agent.example/media?b=2&a=1")
    ]
    plivo += [
        {
            "url": url,
            "form": FORM,
            "nonce": NONCE,
            "signature": get_signature_v3(TOKEN.encode(), construct_post_url(url, FORM).decode(), NONCE).decode(),
        }
        for url in URLS[:2]
    ]
    recorded = {"twilio": version("twilio"), "plivo": version("plivo"), "token": TOKEN}
    result = {"recorded": recorded, "twilio": twilio, "plivo": plivo, "twiml": documents()}
    Path(out).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
