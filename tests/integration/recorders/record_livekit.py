"""Records sessions with a LiveKit agent into fixtures: `python record_livekit.py PORT SPEECH.wav FOLDER`.

Runs in the environment of the peer: messages are made and read by LiveKit's own protobuf classes, so the fixtures owe
nothing to the code that they test. One line of a fixture is one message as it came, in base64, or `{"played": true}`
where the agent received that what it flushed is played, or `{"asked": true}` where the caller began to speak. Of each
run of audio only the first three messages are kept. The first line says what was recorded. SPEECH is mono at 48 kHz.
"""

import asyncio
import base64
import importlib.metadata
import json
import os
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

from livekit.protocol.agent_pb import agent_session as pb

AGENT = Path(__file__).parents[1] / "peers" / "livekit_agent.py"
FRAME_S = 0.02
FRAME_BYTES = 1920
RATE_HZ = 48_000
KEPT_AUDIO = 3
BARGE_IN_S = 0.8
AFTER_S = 0.5
MAX_S = 60.0


class Session:
    """One session with an agent process that has connected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, speech: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._speech = speech
        self._left = b""  # of the speech
        self._plays_until = 0.0
        self._playing: asyncio.TimerHandle | None = None
        self._audio = 0
        self.lines: list[dict[str, Any]] = []
        self.kinds: list[str] = []
        self._loop = asyncio.get_running_loop()

    def send(self, message: Any) -> None:
        data = message.SerializeToString()
        self._writer.write(len(data).to_bytes(4, "big") + data)

    def ask(self) -> None:
        """Begin to speak."""
        self._left = self._speech
        self.lines.append({"asked": True})

    async def talk(self) -> None:
        """Say the speech, and silence around it, in real time."""
        began = self._loop.time()
        for index in range(10**6):
            frame, self._left = self._left[:FRAME_BYTES].ljust(FRAME_BYTES, b"\0"), self._left[FRAME_BYTES:]
            audio = pb.AgentSessionMessage.ConsoleIO.AudioFrame(
                data=frame, sample_rate=RATE_HZ, num_channels=1, samples_per_channel=len(frame) // 2
            )
            self.send(pb.AgentSessionMessage(audio_input=audio))
            await asyncio.sleep(began + index * FRAME_S - self._loop.time())

    async def listen(self) -> None:
        """Note what comes, and tell the agent when what it flushed is played."""
        while True:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            data = await self._reader.readexactly(length)
            message = pb.AgentSessionMessage.FromString(data)
            kind = message.WhichOneof("message")
            self._note(message, kind, data)
            if kind == "audio_output":
                seconds = message.audio_output.samples_per_channel / message.audio_output.sample_rate
                self._plays_until = max(self._plays_until, self._loop.time()) + seconds
            elif kind == "audio_playback_flush":
                self._playing = self._loop.call_at(self._plays_until, self._played)
            elif kind == "audio_playback_clear" and self._playing is not None:
                self._playing.cancel()
                self._plays_until = 0.0

    def _note(self, message: Any, kind: str, data: bytes) -> None:
        self._audio = self._audio + 1 if kind == "audio_output" else 0 if "playback" in kind else self._audio
        if kind != "audio_output" or self._audio <= KEPT_AUDIO:
            self.lines.append({"binary": base64.b64encode(data).decode()})
        name = message.event.WhichOneof("event") if kind == "event" else kind
        if name == "agent_state_changed":
            name += f" {message.event.agent_state_changed.new_state}"
        self.kinds.append(name)

    def _played(self) -> None:
        finished = pb.AgentSessionMessage()
        finished.audio_playback_finished.SetInParent()
        self.send(finished)
        self.lines.append({"played": True})

    async def until(self, kind: str, count: int) -> None:
        async with asyncio.timeout(MAX_S):
            while self.kinds.count(kind) < count:  # noqa: ASYNC110 - one of many kinds, of which none is awaited alone
                await asyncio.sleep(0.01)


SPEAKING, LISTENING = "agent_state_changed 4", "agent_state_changed 2"


async def two_turns_and_a_barge_in(session: Session) -> None:
    session.ask()
    await session.until(SPEAKING, 1)
    await session.until(LISTENING, 2)
    session.ask()
    await session.until(SPEAKING, 2)
    await asyncio.sleep(BARGE_IN_S)
    session.ask()
    await session.until(SPEAKING, 3)
    await session.until(LISTENING, 4)


async def one_turn_with_a_tool(session: Session) -> None:
    session.ask()
    await session.until(SPEAKING, 2)
    await session.until(LISTENING, 2)


async def one_turn_that_fails(session: Session) -> None:
    session.ask()
    await session.until("error", 1)
    await session.until(LISTENING, 2)


SESSIONS = {
    "agent": (two_turns_and_a_barge_in, {"AGENT_WORDS": "12"}),
    "tool": (one_turn_with_a_tool, {"AGENT_TOOL": "1"}),
    "fails": (one_turn_that_fails, {"AGENT_FAILS": "1"}),
}


async def record(name: str, port: int, speech: bytes, folder: Path) -> None:
    script, wanted = SESSIONS[name]
    done: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(reader, writer, speech)
        for wanted_name in ("get_framework_info", "get_session_state"):
            request = pb.SessionRequest(request_id=wanted_name)
            getattr(request, wanted_name).SetInParent()
            session.send(pb.AgentSessionMessage(request=request))
        tasks = [asyncio.create_task(session.talk()), asyncio.create_task(session.listen())]
        await script(session)
        await asyncio.sleep(AFTER_S)
        for task in tasks:
            task.cancel()
        done.set_result(session)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    command = [sys.executable, "-m", "livekit.agents", "console", str(AGENT), "--connect-addr", f"127.0.0.1:{port}"]
    environment = os.environ | {"AGENT_WARMUP_S": "0"} | wanted
    agent = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        session = await asyncio.wait_for(done, MAX_S)
    finally:
        agent.terminate()
        agent.wait()
        server.close()
    version = importlib.metadata.version("livekit-agents")
    lines = [{"recorded": {"peer": "livekit-agents", "version": version, "session": name}}, *session.lines]
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    await asyncio.to_thread((folder / f"{name}-{version}.jsonl").write_text, text)
    print(name, *session.kinds)


async def main(port: int, speech: Path, folder: Path) -> None:
    with wave.open(str(speech)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (RATE_HZ, 1, 2)
        pcm = sound.readframes(sound.getnframes())
    for index, name in enumerate(SESSIONS):
        await record(name, port + index, pcm, folder)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])))
