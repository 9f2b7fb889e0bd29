// Report one turn to the sidecar from Node without any package: OTLP is JSON over HTTP.
//
//   OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 node turn.mjs
//
// With @opentelemetry/api the same is tracer.startSpan("voice.turn"), span.addEvent("voice.llm.first_token") and
// span.setAttribute("voice.turn.cohort", "canary").
import { randomBytes } from "node:crypto";

const endpoint = process.env.OTEL_EXPORTER_OTLP_ENDPOINT ?? "http://127.0.0.1:4318";
const started = BigInt(Date.now()) * 1_000_000n;
const after = (ms) => String(started + BigInt(ms) * 1_000_000n);
const text = (key, value) => ({ key, value: { stringValue: value } });

const turn = {
  traceId: randomBytes(16).toString("hex"),
  spanId: randomBytes(8).toString("hex"),
  name: "voice.turn",
  startTimeUnixNano: after(0),
  endTimeUnixNano: after(2400),
  events: [
    { name: "voice.speech.end", timeUnixNano: after(1500) },
    { name: "voice.asr.final", timeUnixNano: after(1750) },
    { name: "voice.llm.first_token", timeUnixNano: after(1950) },
    { name: "voice.tts.first_chunk", timeUnixNano: after(2100) },
  ],
  attributes: [text("voice.turn.route", "cloud"), text("voice.turn.cohort", "canary")],
};
const answer = await fetch(`${endpoint}/v1/traces`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({
    resourceSpans: [{ resource: { attributes: [text("service.name", "my-bot")] }, scopeSpans: [{ spans: [turn] }] }],
  }),
});
if (!answer.ok) throw new Error(`the sidecar answered ${answer.status}: ${await answer.text()}`);
