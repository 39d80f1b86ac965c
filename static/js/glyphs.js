// Draws the card glyph from a node's wire row, exactly as gpupools/web/glyphs.py and templatetags.py do.
import { say } from "./words.js";

const WIDTH = 96;
const SLOT = 16;
const GAP = 3;
const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function shape(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const sprite = document.querySelector("svg.i use")?.getAttribute("href")?.split("#")[0] ?? "";

export function icon(name) {
  return shape("svg", { class: "i ", "aria-hidden": "true", focusable: "false" }, shape("use", { href: `${sprite}#${name}` }));
}

/** Amounts to [x, width] in whole pixels; rounding never accumulates, and nothing held is invisible. */
export function edges(values, scale, width = WIDTH) {
  const spans = [];
  let before = 0;
  for (const value of values) {
    const start = Math.floor((before * width * 2) / scale + 1) >> 1;
    before += value;
    const end = Math.floor((before * width * 2) / scale + 1) >> 1;
    spans.push([start, Math.max(end - start, value ? 1 : 0)]);
  }
  return spans;
}

const shadeOf = (place) => (place % 2 ? " b" : "");
const title = (text) => shape("title", {}, text);
const nameOf = (holding) => (holding.namespace ? `${holding.namespace}/${holding.pod}` : holding.pod);

function segment(css, place, x, y, width, height, holding) {
  const box = { x, y, width, height };
  const main = shape("rect", { class: css + shadeOf(place), ...box }, title(nameOf(holding)));
  return holding.releasing ? [main, shape("rect", { fill: "url(#hatch)", ...box })] : [main];
}

/** One card of a shared node. */
export function bar(gpu) {
  const held = gpu.holdings.filter((holding) => holding.memory_units);
  const amounts = held.map((holding) => holding.memory_units);
  const sum = amounts.reduce((a, b) => a + b, 0);
  const total = gpu.memory_units;
  const scale = Math.max(total, sum, 1);
  const parts = [shape("rect", { class: "track", width: WIDTH, height: 12 })];
  edges(amounts, scale).forEach(([x, width], place) => parts.push(...segment("held", place, x, 0, width, 12, held[place])));
  const over = sum > total;
  if (over) {
    const limit = edges([total], scale)[0][1];
    parts.push(shape("rect", { x: limit, width: WIDTH - limit, height: 12, fill: "url(#cross)" }));
    parts.push(shape("rect", { class: "limit", x: limit, width: 2, height: 12 }));
  }
  if (!gpu.healthy) parts.push(shape("rect", { width: WIDTH, height: 12, fill: "url(#cross)" }));
  if (gpu.core_percent) {
    const cores = held.map((holding) => holding.core_percent);
    const coreScale = Math.max(gpu.core_percent, cores.reduce((a, b) => a + b, 0), 1);
    parts.push(shape("rect", { class: "core-track", y: 13, width: WIDTH, height: 3 }));
    edges(cores, coreScale).forEach(([x, width], place) => parts.push(...segment("core", place, x, 13, width, 3, held[place])));
  }
  parts.push(shape("rect", { class: "frame", width: WIDTH, height: 12 }));
  const holders = new Set(held.map((holding) => holding.uid)).size;
  const pods = say(holders === 1 ? "glyph.pods.one" : "glyph.pods.many", { n: holders });
  let text = say("glyph.bar", { index: gpu.index, used: gpu.memory_units_used, total, pods });
  if (gpu.core_percent) text += say("glyph.core", { used: gpu.core_percent_used, total: gpu.core_percent });
  if (over) text += say("glyph.over");
  if (!gpu.healthy) text += say("glyph.unhealthy");
  const flags = `${over ? "is-over " : ""}${gpu.healthy ? "" : "is-unhealthy "}`;
  const drawing = shape("svg", {
    class: `glyph bar ${flags}`, width: WIDTH, height: 16, viewBox: `0 0 ${WIDTH} 16`, preserveAspectRatio: "none", role: "img", "aria-label": text,
  }, title(text), ...parts);
  return [drawing, element("span", { class: "count-text" }, `${gpu.memory_units_used}/${total}`)];
}

function takenSlots(row) {
  if (row.gpus.length) {
    const order = new Map();
    return row.gpus.map((gpu) => {
      const holding = gpu.holdings[0];
      if (!holding) return null;
      if (!order.has(holding.uid)) order.set(holding.uid, order.size);
      return [holding, order.get(holding.uid)];
    });
  }
  return row.holdings.flatMap((holding, place) => Array.from({ length: holding.cards }, () => [holding, place]));
}

/** The whole cards of a node. */
export function slots(row) {
  const taken = takenSlots(row);
  while (taken.length < row.cards) taken.push(null);
  const width = Math.max(taken.length * (SLOT + GAP) - GAP, SLOT);
  const over = taken.length > row.cards;
  const parts = [];
  taken.forEach((entry, place) => {
    const x = place * (SLOT + GAP);
    if (entry) parts.push(...segment("held", entry[1], x, 0, SLOT, 12, entry[0]));
    else parts.push(shape("rect", { class: "track", x, width: SLOT, height: 12 }));
    parts.push(shape("rect", { class: "frame", x, width: SLOT, height: 12 }));
  });
  if (over) parts.push(shape("rect", { class: "limit", x: row.cards * (SLOT + GAP) - 2, width: 2, height: 16 }));
  const text = say("glyph.slots", { used: row.cards_used, total: row.cards }) + (row.gpus.length ? "" : say("glyph.which"));
  const drawing = shape("svg", {
    class: `glyph slots ${over ? "is-over" : ""}`, width, height: 16, viewBox: `0 0 ${width} 16`, role: "img", "aria-label": text,
  }, title(text), ...parts);
  return [drawing, element("span", { class: "count-text" }, `${row.cards_used}/${row.cards}`)];
}

export const isShared = (row) => Boolean(row.memory_units) || row.gpus.some((gpu) => gpu.memory_units);

function extra(pattern, tone, text) {
  const box = { width: 14, height: 12 };
  return element("span", { class: `extra ${tone}` },
    shape("svg", { class: "glyph mode-unknown", ...box, "aria-hidden": "true" },
      shape("rect", { class: pattern === "hatch" ? "held" : "track", ...box }),
      shape("rect", { ...box, fill: `url(#${pattern})` }),
      shape("rect", { class: "frame", ...box })),
    text);
}

export function extras(row) {
  const counted = (key, n) => say(n === 1 ? `${key}.one` : `${key}.many`, { n });
  const found = [];
  if (row.memory_units_pending) found.push(extra("dots", "tone-warn", counted("extra.pending", row.memory_units_pending)));
  if (row.memory_units_orphan) found.push(extra("cross", "tone-bad", counted("extra.orphan", row.memory_units_orphan)));
  if (row.memory_units_releasing) found.push(extra("hatch", "quiet", counted("extra.releasing", row.memory_units_releasing)));
  if (row.cards_releasing) found.push(extra("hatch", "quiet", counted("extra.cards", row.cards_releasing)));
  if (row.cards_missing) found.push(extra("cross", "tone-bad", counted("cards.missing", row.cards_missing)));
  return found;
}

/** All cards of a node, each a link to the card on the node's page. */
export function nodeGlyphs(row, href) {
  if (!row.cards && !row.gpus.length) {
    const why = say("glyph.none");
    return element("span", { class: "glyphs" },
      element("span", { class: "unknown", title: why }, "—", element("span", { class: "visually-hidden" }, ` ${why}`)),
      ...extras(row));
  }
  const css = `card-glyph mode-${row.mode ?? "unknown"}`;
  const link = (drawn, index) => element("a", { class: css, href: `${href}#card-${Math.max(index, 0)}`, "data-card": index }, ...drawn);
  const drawn = isShared(row) ? row.gpus.map((gpu) => link(bar(gpu), gpu.index)) : [link(slots(row), -1)];
  return element("span", { class: "glyphs" }, ...drawn, ...extras(row));
}
