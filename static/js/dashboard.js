// The live dashboard: draws node rows, follows the socket, says how old the numbers are, and opens the side panel.
// Numbers come as one snapshot and numbered deltas; a gap is never guessed over, it is asked about.
import { age, now, timeOfDay } from "./ages.js";
import { bar, element, extras, icon, isShared, nodeGlyphs, slots } from "./glyphs.js";
import { Feed } from "./feed.js";
import { say } from "./words.js";

const root = document.getElementById("dashboard");
const board = document.getElementById("board");
const start = JSON.parse(document.getElementById("snapshot").textContent);
const modes = JSON.parse(document.getElementById("modes").textContent);
const rows = new Map(start.nodes.map((row) => [row.node, row]));
const items = new Map([...board.children].map((item) => [item.dataset.node, item]));
const filters = { text: "", mode: "", sort: "name" };

const percent = (part, whole) => (whole ? `${Math.floor((part * 100) / whole)}%` : "—");
const counted = (key, n) => say(n === 1 ? `${key}.one` : `${key}.many`, { n });
const pageOf = (row) => root.dataset.nodeUrl.replace("__node__", encodeURIComponent(row.node));
const podPage = (holding) =>
  holding.namespace &&
  root.dataset.podUrl.replace("__namespace__", encodeURIComponent(holding.namespace)).replace("__pod__", encodeURIComponent(holding.pod));

// ---- one node
function modeMark(row) {
  const facts = modes[row.mode];
  const name = facts ? row.mode : say("mode.undeclared");
  return element("span", { class: `mode mode-${facts ? row.mode : "unknown"}`, title: facts?.title },
    element("span", { class: "mode-code" }, facts?.code ?? "??"),
    element("span", {}, name, ...(facts?.shared ? [" ", element("span", { class: "policy" }, row.policy)] : [])));
}

function flags(row) {
  const flag = (tone, symbol, text) => element("span", { class: `state tone-${tone} small` }, icon(symbol), text);
  const found = [];
  if (!row.ready) found.push(flag("bad", "circle-x", say("node.notready")));
  if (row.unschedulable) found.push(flag("warn", "ban", say("node.cordoned")));
  if (row.drift.length) found.push(flag("warn", "git-pull-request", counted("node.drift", row.drift.length)));
  if (row.warnings.length) found.push(flag("warn", "alert-triangle", counted("node.warnings", row.warnings.length)));
  return found;
}

function draw(row) {
  const model = row.model ? ` · ${say("node.cards", { cards: row.cards, model: row.model })}` : "";
  const shared = isShared(row);
  const [used, total] = shared ? [row.memory_units_used, row.memory_units] : [row.cards_used, row.cards];
  return element("li", { class: "board-node", id: `node-${row.node}`, "data-node": row.node },
    element("div", { class: "who" },
      element("a", { href: pageOf(row), "data-node-link": "" }, row.node),
      element("span", { class: "under" }, `${row.pool || say("node.no_pool")}${model}`),
      ...flags(row)),
    element("div", { class: "mode-cell" }, modeMark(row)),
    element("div", { class: "cards-cell" }, nodeGlyphs(row, pageOf(row))),
    element("div", { class: "sum" }, `${used}/${total}`,
      element("span", { class: "under" }, say(shared ? "sum.units" : "sum.cards", { percent: percent(used, total) }))));
}

function replace(row, flash) {
  const old = items.get(row.node);
  const focused = old?.contains(document.activeElement) ? document.activeElement.dataset.card ?? "link" : null;
  const item = draw(row);
  item.hidden = !matches(row);
  if (flash) item.classList.add("changed");
  items.set(row.node, item);
  if (old) old.replaceWith(item);
  else place(item, row);
  if (focused !== null) (item.querySelector(`[data-card="${focused}"]`) ?? item.querySelector("a")).focus();
}

// ---- filter, sort, count
const haystack = (row) =>
  [row.node, row.ip, row.pool, row.model, row.mode ?? "", ...row.holdings.flatMap((h) => [h.pod, h.namespace, h.owner]), ...row.unplaced.map((h) => h.pod)]
    .join(" ").toLowerCase();

function matches(row) {
  if (filters.mode && (row.mode ?? "unknown") !== filters.mode) return false;
  return !filters.text || filters.text.split(/\s+/).every((word) => haystack(row).includes(word));
}

const share = (row) => (isShared(row) ? row.memory_units_used / (row.memory_units || 1) : row.cards_used / (row.cards || 1));
const byName = (a, b) => a.node.localeCompare(b.node, "en", { numeric: true });
const orders = {
  name: byName,
  used: (a, b) => share(b) - share(a) || byName(a, b),
  free: (a, b) => share(a) - share(b) || byName(a, b),
  mode: (a, b) => String(a.mode).localeCompare(String(b.mode)) || byName(a, b),
};

function place(item, row) {
  const order = orders[filters.sort];
  const next = [...board.children].find((other) => order(row, rows.get(other.dataset.node) ?? row) < 0);
  board.insertBefore(item, next ?? null);
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
  document.getElementById("tally").textContent = say("board.shown", { shown, total: rows.size });
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
    const filled = tile.querySelector("rect.held");
    if (filled) {
      const [part, whole] = filled.dataset.part.split("/");
      filled.setAttribute("width", sum[whole] ? Math.min(100, Math.round((sum[part] * 100) / sum[whole])) : 0);
    }
  }
}

// ---- the side panel
const panel = document.getElementById("panel");
let opened = null;

function holderLine(holding, place, row, amounts) {
  const href = podPage(holding);
  const name = holding.namespace ? `${holding.namespace}/${holding.pod}` : holding.pod;
  const key = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  key.setAttribute("class", `key glyph mode-${row.mode ?? "unknown"}`);
  const swatch = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [k, v] of Object.entries({ class: place % 2 ? "held b" : "held", width: 10, height: 10 })) swatch.setAttribute(k, v);
  key.append(swatch);
  return element("li", {}, key,
    href ? element("a", { href, class: "mono wrap-anywhere" }, name) : element("span", { class: "mono" }, name),
    element("span", { class: "amount" }, amounts),
    element("span", { class: "under" }, [holding.owner, holding.releasing ? say("panel.releasing") : ""].filter(Boolean).join(" · ")));
}

function amountOf(holding) {
  const parts = [];
  if (holding.memory_units) parts.push(say("panel.units", { n: holding.memory_units }));
  if (holding.core_percent) parts.push(say("panel.core", { n: holding.core_percent }));
  if (holding.cards) parts.push(say("panel.whole", { n: holding.cards }));
  return parts.join(" · ");
}

function section(row, title, right, drawing, holdings, picked, note) {
  const css = `card-glyph mode-${row.mode ?? "unknown"}`;
  return element("section", { class: picked ? "panel-card picked" : "panel-card" },
    element("h3", {}, title, element("span", { class: "quiet" }, right)),
    drawing ? element("span", { class: css }, ...drawing) : null,
    holdings.length
      ? element("ul", { class: "holders" }, ...holdings.map((holding, place) => holderLine(holding, place, row, amountOf(holding))))
      : element("p", { class: "quiet small" }, say("panel.nobody")),
    note ? element("p", { class: "quiet small" }, note) : null);
}

function fillPanel() {
  if (!opened) return;
  const row = rows.get(opened.node);
  const body = panel.querySelector(".panel-body");
  panel.querySelector("h2").textContent = opened.node;
  if (!row) {
    body.replaceChildren(element("p", {}, say("panel.gone")));
    return;
  }
  const parts = [element("p", {}, modeMark(row), " ", ...flags(row)), element("p", { class: "glyphs" }, ...extras(row))];
  if (isShared(row)) {
    for (const gpu of row.gpus) {
      const free = say("panel.free", { free: gpu.memory_units - gpu.memory_units_used });
      parts.push(section(row, say("panel.card", { index: gpu.index }), free, bar(gpu), gpu.holdings, opened.card === gpu.index));
    }
  } else if (row.cards || row.gpus.length) {
    const free = say("panel.free_cards", { free: row.cards - row.cards_used });
    parts.push(section(row, say("panel.cards"), free, slots(row), row.holdings, false, row.gpus.length ? "" : say("panel.which")));
  }
  if (row.unplaced.length) parts.push(section(row, say("panel.unplaced"), "", null, row.unplaced, false));
  for (const warning of row.warnings) parts.push(element("p", { class: "error" }, icon("alert-triangle"), warning.message));
  for (const drift of row.drift) {
    const values = { key: drift.key, found: drift.found || say("panel.absent"), wanted: drift.wanted || say("panel.absent") };
    parts.push(element("p", { class: "error tone-warn" }, icon("git-pull-request"), say("panel.drift", values)));
  }
  parts.push(element("p", {}, element("a", { href: pageOf(row), class: "btn btn-plain" }, say("panel.page"))));
  const at = body.scrollTop;
  body.replaceChildren(...parts);
  body.scrollTop = at;
}

function openPanel(node, card, from) {
  opened = { node, card, from };
  panel.hidden = false;
  fillPanel();
  panel.querySelector(".picked")?.scrollIntoView({ block: "nearest" });
  panel.querySelector("[data-close]").focus();
}

function closePanel() {
  if (panel.hidden) return;
  panel.hidden = true;
  const { node, card } = opened;
  opened = null;
  (items.get(node)?.querySelector(`[data-card="${card}"]`) ?? items.get(node)?.querySelector("a"))?.focus();
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
  }
  let changed = 0;
  for (const row of message.nodes) {
    const before = rows.get(row.node);
    if (before && JSON.stringify(before) === JSON.stringify(row)) continue;
    rows.set(row.node, row);
    replace(row, Boolean(before));
    changed += 1;
  }
  for (const name of message.removed ?? []) drop(name);
  tell(message.totals);
  sift();
  fillPanel();
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

function refreshText() {
  if (!textTable?.open || textDue) return;
  textDue = true;
  setTimeout(async () => {
    textDue = false;
    try {
      const answer = await fetch(textTable.dataset.url);
      if (answer.ok) textTable.querySelector("pre").textContent = await answer.text();
    } catch {
      // Stale text says so itself: its first line has its instant.
    }
  }, 1000);
}

// ---- the freshness chip
const chip = document.getElementById("fresh");

function showState({ state, takenAt, seconds }) {
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
  openPanel(card.closest(".board-node").dataset.node, Number(card.dataset.card), card);
});
board.addEventListener("keydown", arrows);
panel.querySelector("[data-close]").addEventListener("click", closePanel);
document.addEventListener("keydown", (event) => event.key === "Escape" && closePanel());
textTable?.addEventListener("toggle", refreshText);

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
