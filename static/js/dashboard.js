// The live dashboard: draws node rows, follows the socket, says how old the numbers are, and opens the side panel.
// Numbers come as one snapshot and numbered deltas; a gap is never guessed over, it is asked about.
import { age, now, timeOfDay } from "./ages.js";
import { counted, drawNode, percent } from "./board.js";
import { Feed } from "./feed.js";
import { isShared } from "./glyphs.js";
import { Panel } from "./panel.js";
import { say } from "./words.js";

const root = document.getElementById("dashboard");
const board = document.getElementById("board");
const start = JSON.parse(document.getElementById("snapshot").textContent);
const modes = JSON.parse(document.getElementById("modes").textContent);
const rows = new Map(start.nodes.map((row) => [row.node, row]));
const items = new Map([...board.children].map((item) => [item.dataset.node, item]));
const panel = new Panel(document.getElementById("panel"), {
  look: (node) => rows.get(node),
  addresses: root.dataset,
  modes,
  onClose: (node, card) => (items.get(node)?.querySelector(`[data-card="${card}"]`) ?? items.get(node)?.querySelector("a"))?.focus(),
});
let whole = Number(root.dataset.nodeCount); // the first paint has the first nodes only; the socket brings the rest
const filters = { text: "", mode: "", sort: "name" };

function draw(row, flash) {
  const old = items.get(row.node);
  const focused = old?.contains(document.activeElement) ? document.activeElement.dataset.card ?? "link" : null;
  const item = drawNode(row, root.dataset, modes);
  item.hidden = !matches(row);
  if (flash) item.classList.add("changed");
  items.set(row.node, item);
  if (old) old.replaceWith(item);
  else newcomers.push(row);
  if (focused !== null) (item.querySelector(`[data-card="${focused}"]`) ?? item.querySelector("a")).focus();
}

// ---- filter, sort, count
const texts = new WeakMap(); // rows are replaced whole, so what was read of one stays true

function haystack(row) {
  if (!texts.has(row)) {
    const pods = [...row.holdings, ...row.unplaced].flatMap((holding) => [holding.pod, holding.namespace, holding.owner]);
    texts.set(row, [row.node, row.ip, row.pool, row.model, row.mode ?? "", ...pods].join(" ").toLowerCase());
  }
  return texts.get(row);
}

function matches(row) {
  if (filters.mode && (row.mode ?? "unknown") !== filters.mode) return false;
  return !filters.text || filters.text.split(/\s+/).every((word) => haystack(row).includes(word));
}

const share = (row) => (isShared(row) ? row.memory_units_used / (row.memory_units || 1) : row.cards_used / (row.cards || 1));
const names = new Intl.Collator("en", { numeric: true });
const byName = (a, b) => names.compare(a.node, b.node);
const orders = {
  name: byName,
  used: (a, b) => share(b) - share(a) || byName(a, b),
  free: (a, b) => share(a) - share(b) || byName(a, b),
  mode: (a, b) => String(a.mode).localeCompare(String(b.mode)) || byName(a, b),
};

const newcomers = [];

function settle() {
  const order = orders[filters.sort];
  if (newcomers.length > 20) arrange();
  else {
    for (const row of newcomers) {
      const next = [...board.children].find((other) => order(row, rows.get(other.dataset.node) ?? row) < 0);
      board.insertBefore(items.get(row.node), next ?? null);
    }
  }
  newcomers.length = 0;
}

function arrange() {
  const sorted = [...rows.values()].sort(orders[filters.sort]);
  board.append(...sorted.map((row) => items.get(row.node)).filter(Boolean));
}

function sift() {
  let shown = 0;
  for (const [name, item] of items) {
    item.hidden = !matches(rows.get(name));
    if (!item.hidden) shown += 1;
  }
  document.getElementById("tally").textContent = say("board.shown", { shown, total: Math.max(rows.size, whole) });
  document.getElementById("nothing-found").hidden = shown > 0 || rows.size === 0;
  document.getElementById("no-nodes").hidden = rows.size > 0;
}

function remember() {
  const query = new URLSearchParams(window.location.search);
  for (const [key, value] of [["q", filters.text], ["mode", filters.mode], ["sort", filters.sort === "name" ? "" : filters.sort]]) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  history.replaceState(null, "", `${window.location.pathname}${query.size ? `?${query}` : ""}`);
}

function choose(changes) {
  Object.assign(filters, changes);
  for (const button of document.querySelectorAll("button.tile[data-mode]")) {
    button.setAttribute("aria-pressed", String(filters.mode === button.dataset.mode));
  }
  if ("sort" in changes) arrange();
  sift();
  remember();
}

// ---- totals
function tell(totals) {
  if (!totals) return;
  const sums = Object.fromEntries(totals.modes.map((each) => [each.mode ?? "unknown", each]));
  for (const tile of document.querySelectorAll("[data-total]")) {
    const sum = tile.dataset.total === "all" ? totals.all : sums[tile.dataset.total];
    if (tile.dataset.total !== "all") tile.hidden = !sum;
    if (!sum) continue;
    for (const field of tile.querySelectorAll("[data-field]")) {
      const [part, whole] = field.dataset.field.split("/");
      field.textContent = whole ? percent(sum[part], sum[whole]) : sum[part];
    }
    for (const missing of tile.querySelectorAll("[data-missing]")) {
      missing.hidden = !sum.cards_missing;
      missing.querySelector("span").textContent = counted("cards.missing", sum.cards_missing);
    }
    const filled = tile.querySelector("rect.held");
    if (filled) {
      const [part, whole] = filled.dataset.part.split("/");
      filled.setAttribute("width", sum[whole] ? Math.min(100, Math.round((sum[part] * 100) / sum[whole])) : 0);
    }
  }
}

// ---- keyboard: arrows move from card to card, Enter opens the pods
function arrows(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const line = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const card = event.target.closest("[data-card]");
  if (!card || (!step && !line)) return;
  event.preventDefault();
  const item = card.closest(".board-node");
  const cards = [...item.querySelectorAll("[data-card]")];
  const at = cards.indexOf(card);
  if (step) {
    cards[at + step]?.focus();
    return;
  }
  let other = item[line];
  while (other && (other.hidden || !other.querySelector("[data-card]"))) other = other[line];
  const there = [...(other?.querySelectorAll("[data-card]") ?? [])];
  there[Math.min(at, there.length - 1)]?.focus();
}

// ---- what comes in
const announcer = document.getElementById("announcer");

function take(message) {
  if (message.type === "snapshot") {
    const names = new Set(message.nodes.map((row) => row.node));
    for (const name of [...rows.keys()]) if (!names.has(name)) drop(name);
    whole = 0;
  }
  let changed = 0;
  for (const row of message.nodes) {
    const before = rows.get(row.node);
    if (before && JSON.stringify(before) === JSON.stringify(row)) continue;
    rows.set(row.node, row);
    draw(row, Boolean(before));
    changed += 1;
  }
  settle();
  for (const name of message.removed ?? []) drop(name);
  tell(message.totals);
  sift();
  panel.fill();
  if (changed && message.type === "delta") {
    announcer.textContent = counted("live.changed", changed);
    refreshText();
  }
}

function drop(name) {
  rows.delete(name);
  items.get(name)?.remove();
  items.delete(name);
}

// ---- the same table as text
const textTable = document.getElementById("text-table");
let textDue = false;

async function readText() {
  textDue = false;
  try {
    const answer = await fetch(textTable.dataset.url);
    if (!answer.ok) return;
    const shown = textTable.querySelector("pre");
    shown.textContent = await answer.text();
    shown.hidden = false;
  } catch {
    // The link beside it says what went wrong when it is followed.
  }
}

function refreshText(waitMs = 1000) {
  if (!textTable?.open || textDue) return;
  textDue = true;
  setTimeout(readText, waitMs);
}

// ---- the freshness chip
const chip = document.getElementById("fresh");

// A page that has come back, or hears of trouble for the first time, also asks what the server says of the cluster.
let told = start.error || "";

function showState({ state, takenAt, seconds, trouble }) {
  if (trouble !== told) {
    told = trouble;
    chip.title = trouble;
    document.dispatchEvent(new CustomEvent("touched"));
  }
  let text;
  if (state === "live") text = say("live.live", { age: age(takenAt) });
  else if (state === "polled") text = say("live.polled", { seconds, age: age(takenAt) });
  else if (state === "stale") text = takenAt ? say("live.stale", { time: timeOfDay(takenAt) }) : say("live.none");
  else if (state === "signed-out") text = say("live.signed_out");
  else text = say("live.connecting");
  const shown = state === "signed-out" ? "stale" : state;
  if (chip.dataset.state !== shown) {
    if (shown === "stale" && takenAt) announcer.textContent = say("live.lost", { time: timeOfDay(takenAt) });
    if (shown === "live" && chip.dataset.state === "stale") announcer.textContent = say("live.back");
    chip.dataset.state = shown;
  }
  const label = chip.querySelector("[data-fresh-text]");
  if (label.textContent !== text) label.textContent = text;
}

// ---- start
const find = document.getElementById("find");
find.addEventListener("input", () => choose({ text: find.value.trim().toLowerCase() }));
find.form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("sort").addEventListener("change", (event) => choose({ sort: event.target.value }));
for (const button of document.querySelectorAll("button.tile[data-mode]")) {
  button.addEventListener("click", () => choose({ mode: filters.mode === button.dataset.mode ? "" : button.dataset.mode }));
}
for (const button of document.querySelectorAll("[data-density-choice]")) {
  button.addEventListener("click", () => {
    board.dataset.density = button.dataset.densityChoice;
    for (const other of document.querySelectorAll("[data-density-choice]")) other.setAttribute("aria-pressed", String(other === button));
  });
}
board.addEventListener("click", (event) => {
  const card = event.target.closest("[data-card]");
  if (!card || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  panel.open(card.closest(".board-node").dataset.node, Number(card.dataset.card));
});
board.addEventListener("keydown", arrows);
textTable?.addEventListener("toggle", () => refreshText(0));

const query = new URLSearchParams(window.location.search);
find.value = query.get("q") ?? "";
document.getElementById("sort").value = orders[query.get("sort")] ? query.get("sort") : "name";
choose({ text: find.value.toLowerCase(), mode: query.get("mode") ?? "", sort: document.getElementById("sort").value });

const feed = new Feed({
  socketUrl: root.dataset.socketUrl,
  pollUrl: root.dataset.pollUrl,
  signInUrl: root.dataset.signInUrl,
  start,
  onMessage: take,
  onState: showState,
  now,
});
feed.open();
