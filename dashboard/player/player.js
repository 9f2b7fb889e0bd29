// Draws a turn (waveforms of both channels above its waterfall) on one clock, and moves one playhead while it plays.
// Texts come from outside: they are set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const WAVE = 54, LINE = 34, AXIS = 26, GAP = 8;

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function titled(made, title) {
  made.appendChild(element("title", {}, title));
  return made;
}

function steps(span, most) {
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw);
}

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

// Both channels need no graph: one is made when a channel is chosen alone, which is then heard on both sides.
function channelGraph(audio) {
  const context = new AudioContext();
  const splitter = context.createChannelSplitter(2);
  context.createMediaElementSource(audio).connect(splitter);
  const gains = [0, 1].map((channel) => {
    const gain = context.createGain();
    splitter.connect(gain, channel);
    gain.connect(context.destination);
    return gain;
  });
  return { context, gains };
}

class Player {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.whole = Boolean(data.audio);
    this.graph = null;
    this.audio = root.querySelector("audio");
    this.play = root.querySelector(".play");
    this.position = root.querySelector(".position");
    this.clock = root.querySelector(".clock");
    this.picture = root.querySelector(".picture");
    root.querySelector(".bar").hidden = !data.audio;
    if (data.audio) {
      this.url = URL.createObjectURL(new Blob([bytesOf(data.audio)], { type: data.media_type }));
      this.audio.src = this.url;
      this.position.min = 0;
      this.position.max = Math.round(data.end_ms - data.first_ms);
      this.listen();
    }
    root.querySelectorAll("[data-zoom]").forEach((button, at) => { button.textContent = data.zooms[at]; });
    for (const button of root.querySelectorAll("[data-zoom]")) {
      button.onclick = () => this.zoom(button.dataset.zoom === "whole");
    }
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.picture);
    this.zoom(this.whole);
  }

  listen() {
    this.play.onclick = () => this.toggle();
    this.audio.onplay = () => { this.shown(); this.tick(); };
    this.audio.onpause = this.audio.onended = () => this.shown();
    this.audio.onseeked = this.audio.onloadedmetadata = () => this.place();
    this.position.oninput = () => { this.audio.currentTime = Number(this.position.value) / 1000; this.place(); };
    this.picture.onclick = (event) => this.seek(event);
    this.root.onkeydown = (event) => {
      if (event.key === "k" && !event.ctrlKey && !event.metaKey) this.toggle();
    };
    for (const choice of this.root.querySelectorAll("[name=channel]")) {
      choice.onchange = () => this.choose(choice.value);
    }
  }

  choose(channel) {
    if (!this.graph) {
      if (channel === "both") return;
      this.graph = channelGraph(this.audio);
    }
    this.graph.context.resume();
    this.graph.gains.forEach((gain, at) => { gain.gain.value = channel === "both" || Number(channel) === at ? 1 : 0; });
  }

  toggle() {
    if (this.graph) this.graph.context.resume();
    if (this.audio.paused) this.audio.play(); else this.audio.pause();
  }

  shown() {
    const plays = !this.audio.paused && !this.audio.ended;
    this.play.textContent = plays ? "❚❚ Pause" : "▶ Play";
  }

  tick() {
    this.place();
    if (!this.audio.paused && !this.audio.ended) this.frame = requestAnimationFrame(() => this.tick());
  }

  place() {
    const now = this.data.first_ms + this.audio.currentTime * 1000;
    const sign = now < 0 ? "−" : "+";
    const text = `${sign}${Math.abs(now / 1000).toFixed(2)} s`;
    this.clock.textContent = text;
    this.position.value = Math.round(this.audio.currentTime * 1000);
    this.position.setAttribute("aria-valuetext", `${text} from ${this.data.origin}`);
    if (!this.head) return;
    const [low, high] = this.domain();
    const at = this.x(Math.min(Math.max(now, low), high));
    this.head.setAttribute("x1", at);
    this.head.setAttribute("x2", at);
    this.head.setAttribute("data-ms", now.toFixed(1));
  }

  seek(event) {
    const box = this.picture.getBoundingClientRect(), [low, high] = this.domain();
    const share = (event.clientX - box.left - this.left) / (box.width - this.left - 8);
    if (share < 0) return;
    const ms = low + share * (high - low) - this.data.first_ms;
    this.audio.currentTime = Math.min(Math.max(ms / 1000, 0), this.audio.duration || 0);
    this.place();
  }

  zoom(whole) {
    this.whole = whole;
    for (const button of this.root.querySelectorAll("[data-zoom]")) {
      button.setAttribute("aria-pressed", String((button.dataset.zoom === "whole") === whole));
    }
    this.draw();
  }

  domain() {
    return this.whole ? this.data.whole : this.data.view;
  }

  x(ms) {
    const [low, high] = this.domain();
    return this.left + ((ms - low) / (high - low)) * (this.width - this.left - 8);
  }

  draw() {
    const { data } = this, waves = data.peaks.length;
    this.width = Math.max(this.picture.clientWidth, 280);
    this.left = this.width < 560 ? 116 : 132;
    const top = waves * (WAVE + GAP), height = top + data.lines.length * LINE + AXIS;
    const svg = element("svg", { width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", data.alt);
    this.axis(svg, height);
    data.peaks.forEach((peaks, channel) => this.wave(svg, peaks, channel));
    data.missing.forEach(([from, to, reason]) => this.hole(svg, from, to, reason));
    data.lines.forEach((line, at) => this.line(svg, line, top + at * LINE));
    svg.appendChild(element("line", {
      x1: this.x(0), x2: this.x(0), y1: 0, y2: height - AXIS, class: "zero",
    }));
    if (data.audio) {
      this.head = element("line", { x1: 0, x2: 0, y1: 0, y2: height - AXIS, class: "head" });
      svg.appendChild(this.head);
    }
    this.picture.replaceChildren(svg);
    if (data.audio) this.place();
  }

  axis(svg, height) {
    const [low, high] = this.domain(), step = steps(high - low, Math.max(2, (this.width - this.left) / 90));
    for (let ms = Math.ceil(low / step) * step; ms <= high; ms += step) {
      const at = this.x(ms);
      svg.appendChild(element("line", { x1: at, x2: at, y1: 0, y2: height - AXIS, class: "grid" }));
      const text = `${(Math.round(ms) || 0).toLocaleString("en").replace("-", "−")} ms`;
      // The last one would reach beyond the edge, the more so where a reader spaces letters.
      const isLast = at + text.length * 4.5 > this.width;
      const place = isLast ? { x: this.width, class: "tick last" } : { x: at, class: "tick" };
      svg.appendChild(element("text", { y: height - AXIS + 16, ...place }, text));
    }
  }

  wave(svg, peaks, channel) {
    const { data } = this, middle = channel * (WAVE + GAP) + WAVE / 2;
    this.label(svg, data.channels[channel], middle + 4);
    const [low, high] = this.domain(), each = (data.end_ms - data.first_ms) / peaks.length;
    let up = "", down = "";
    peaks.forEach((peak, at) => {
      const ms = data.first_ms + (at + 0.5) * each;
      if (ms < low || ms > high) return;
      // Speech is quiet: the root makes what is heard visible.
      const size = Math.max(0.5, Math.sqrt(peak) * (WAVE / 2 - 1)), x = this.x(ms).toFixed(1);
      up += `${up ? "L" : "M"}${x},${(middle - size).toFixed(1)}`;
      down = `L${x},${(middle + size).toFixed(1)}${down}`;
    });
    if (up) svg.appendChild(element("path", { d: `${up}${down}Z`, class: `wave channel-${channel}` }));
  }

  hole(svg, from, to, reason) {
    const low = this.x(Math.max(from, this.domain()[0])), high = this.x(Math.min(to, this.domain()[1]));
    if (high <= low) return;
    const made = element("rect", { x: low, width: high - low, y: WAVE + GAP, height: WAVE, class: "hole" });
    svg.appendChild(titled(made, `audio is missing: ${reason}`));
  }

  label(svg, text, y) {
    svg.appendChild(element("text", { x: this.left - 10, y, class: "label" }, text));
  }

  line(svg, line, top) {
    const [low, high] = this.domain(), half = (LINE - 6) / 2;
    this.label(svg, line.name, top + LINE / 2 + 4);
    for (const bar of line.bars) {
      const from = this.x(Math.max(bar.from, low)), to = this.x(Math.min(bar.to, high));
      if (bar.to < low || bar.from > high) continue;
      const y = top + 2 + (bar.side ? half + 1 : 0);
      const rect = element("rect", {
        x: from, width: Math.max(1, to - from), y, height: half - 1, rx: 2, fill: bar.color, class: bar.side ? "reported" : "heard",
      });
      svg.appendChild(titled(rect, bar.title));
      const room = to + 5 + bar.text.length * 6.4 < this.width;
      const text = { x: room ? to + 5 : from - 5, y: y + half - 4, class: room ? "value" : "value before" };
      svg.appendChild(element("text", text, bar.text));
    }
    for (const mark of line.marks) {
      if (mark.at < low || mark.at > high) continue;
      const y = top + 2 + (mark.side ? half + 1 : 0), at = this.x(mark.at);
      const tick = element("line", { x1: at, x2: at, y1: y, y2: y + half - 1, class: mark.side ? "mark reported" : "mark" });
      svg.appendChild(titled(tick, mark.title));
    }
  }

  close() {
    this.resized.disconnect();
    cancelAnimationFrame(this.frame);
    this.audio.pause();
    if (this.url) URL.revokeObjectURL(this.url);
    if (this.graph) this.graph.context.close();
  }
}

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".player");
  // Also of a player that stays: the viewer may have switched the theme.
  for (const [name, value] of Object.entries(data.colors)) root.style.setProperty(`--${name}`, value);
  if (root.player && root.player.data.key === data.key) {
    root.player.data = { ...data, audio: root.player.data.audio };
    root.player.draw();
    return undefined;
  }
  if (root.player) root.player.close();
  root.player = new Player(root, data);
  return () => { root.player.close(); root.player = null; };
}
