// The stream of allocation numbers: a socket that comes back by itself, and the REST list while it does not.
// It knows sequence numbers, never what a number means.

const QUIET_MS = 7_000; // three pulses missed: the numbers no longer follow the cluster
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;
const POLL_SECONDS = 15;
const TRIES_BEFORE_POLLING = 3;
const FINAL_CODES = new Set([4401, 4403, 4404]);

export class Feed {
  constructor({ socketUrl, pollUrl, start, onMessage, onState, now }) {
    this.socketUrl = new URL(socketUrl, window.location.href);
    this.socketUrl.protocol = window.location.protocol === "https:" ? "wss:" : "ws:";
    this.pollUrl = pollUrl;
    this.onMessage = onMessage;
    this.onState = onState;
    this.now = now;
    this.epoch = start.epoch;
    this.sequence = start.sequence;
    this.takenAt = start.taken_at ? Date.parse(start.taken_at) : null;
    this.trouble = start.error || "";
    this.heardAt = null;
    this.tries = 0;
    this.waiting = false;
    this.ended = "";
    this.polledAt = null;
  }

  open() {
    this.connect();
    setInterval(() => this.tick(), 1000);
    window.addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.hurry());
  }

  connect() {
    this.timer = null;
    this.socket = new WebSocket(this.socketUrl);
    this.socket.addEventListener("message", (event) => this.hear(JSON.parse(event.data)));
    this.socket.addEventListener("close", (event) => this.lost(event));
  }

  hurry() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.connect();
  }

  lost(event) {
    this.heardAt = null;
    this.waiting = false;
    if (FINAL_CODES.has(event.code)) {
      this.ended = event.code === 4401 ? "signed-out" : "stale";
      this.tick();
      return;
    }
    // Jitter, or every open page would come back in the same instant after a restart.
    const wait = Math.min(FIRST_WAIT_MS * 2 ** this.tries, LONGEST_WAIT_MS) * (0.5 + Math.random());
    this.tries += 1;
    this.timer = setTimeout(() => this.connect(), wait);
    this.tick();
  }

  hear(message) {
    if (message.type === "snapshot") this.begin(message);
    else if (message.type === "delta") this.follow(message);
    else if (message.type === "pulse") this.pulse(message);
    // What is not a number (the cluster's state, pools, changes) the server draws: app.js asks for it again.
    else if (message.type === "touched") document.dispatchEvent(new CustomEvent("touched"));
  }

  begin(message) {
    this.waiting = false;
    this.tries = 0;
    this.epoch = message.epoch;
    this.sequence = message.sequence;
    this.fresh(message);
    this.onMessage(message);
    this.tick();
  }

  follow(message) {
    if (this.waiting) return;
    if (message.epoch === this.epoch && message.sequence <= this.sequence) return; // the snapshot had it
    if (message.epoch !== this.epoch || message.sequence !== this.sequence + 1) {
      this.resync();
      return;
    }
    this.sequence = message.sequence;
    this.fresh(message);
    this.onMessage(message);
    this.tick();
  }

  pulse(message) {
    if (this.waiting) return;
    if (message.epoch !== this.epoch || message.sequence > this.sequence) {
      this.resync();
      return;
    }
    this.fresh(message);
    this.tick();
  }

  fresh(message) {
    this.heardAt = performance.now();
    this.trouble = message.error || "";
    if (message.taken_at) this.takenAt = Date.parse(message.taken_at);
  }

  resync() {
    this.waiting = true;
    this.socket.send(JSON.stringify({ type: "resync" }));
  }

  get state() {
    if (this.ended) return this.ended;
    const open = this.socket.readyState === WebSocket.OPEN;
    if (this.trouble) return "stale";
    if (open && this.heardAt !== null) {
      const quiet = performance.now() - this.heardAt;
      const old = this.takenAt === null ? Infinity : this.now() - this.takenAt;
      return quiet < QUIET_MS && old < QUIET_MS + 2000 ? "live" : old < (POLL_SECONDS + 5) * 1000 ? "polled" : "stale";
    }
    if (this.polledAt !== null && performance.now() - this.polledAt < POLL_SECONDS * 2000) return "polled";
    if (!this.tries && this.heardAt === null) return "waiting";
    return "stale";
  }

  tick() {
    if (!this.ended && this.socket.readyState !== WebSocket.OPEN && this.tries >= TRIES_BEFORE_POLLING) this.poll();
    this.onState({ state: this.state, takenAt: this.takenAt, seconds: POLL_SECONDS, trouble: this.trouble });
  }

  async poll() {
    const at = performance.now();
    if (document.hidden || (this.pollTriedAt && at - this.pollTriedAt < POLL_SECONDS * 1000)) return;
    this.pollTriedAt = at;
    try {
      const answer = await fetch(this.pollUrl, { headers: { Accept: "application/json" } });
      if (!answer.ok) return;
      const message = await answer.json();
      if (this.socket.readyState === WebSocket.OPEN) return;
      this.epoch = message.epoch;
      this.sequence = message.sequence;
      this.trouble = message.error || "";
      if (message.taken_at) this.takenAt = Date.parse(message.taken_at);
      this.polledAt = at;
      this.onMessage({ ...message, type: "snapshot" });
    } catch {
      // The chip says that the numbers are stale; the next round tries again.
    }
  }
}
