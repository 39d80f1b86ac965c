// The side panel: what every card of one node holds, kept true while it is open.
import { counted, flags, modeMark, nodePage } from "./board.js";
import { bar, element, extras, icon, isShared, shape, slots } from "./glyphs.js";
import { say } from "./words.js";

const podPage = (holding, addresses) =>
  holding.namespace &&
  addresses.podUrl.replace("__namespace__", encodeURIComponent(holding.namespace)).replace("__pod__", encodeURIComponent(holding.pod));

function holderLine(holding, place, row, addresses) {
  const href = podPage(holding, addresses);
  const name = holding.namespace ? `${holding.namespace}/${holding.pod}` : holding.pod;
  const under = [holding.owner, holding.releasing ? say("panel.releasing") : ""].filter(Boolean).join(" · ");
  return element("li", {},
    shape("svg", { class: `key glyph mode-${row.mode ?? "unknown"}`, width: 10, height: 10, "aria-hidden": "true" },
      shape("rect", { class: place % 2 ? "held b" : "held", width: 10, height: 10 })),
    href ? element("a", { href, class: "mono wrap-anywhere" }, name) : element("span", { class: "mono" }, name),
    element("span", { class: "amount" }, amountOf(holding)),
    under ? element("span", { class: "under" }, under) : null);
}

function amountOf(holding) {
  const parts = [];
  if (holding.memory_units) parts.push(counted("panel.units", holding.memory_units));
  if (holding.core_percent) parts.push(say("panel.core", { n: holding.core_percent }));
  if (holding.cards) parts.push(counted("panel.whole", holding.cards));
  return parts.join(" · ");
}

/** The panel of a page; `look(node)` returns the current row of a node, or undefined once it is gone. */
export class Panel {
  constructor(root, { look, addresses, modes, onClose }) {
    Object.assign(this, { root, look, addresses, modes, onClose, opened: null });
    root.querySelector("[data-close]").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  open(node, card) {
    this.opened = { node, card };
    this.root.hidden = false;
    this.fill();
    this.root.querySelector(".picked")?.scrollIntoView({ block: "nearest" });
    this.root.querySelector("[data-close]").focus();
  }

  close() {
    if (this.root.hidden) return;
    this.root.hidden = true;
    const { node, card } = this.opened;
    this.opened = null;
    this.onClose(node, card);
  }

  fill() {
    if (!this.opened) return;
    const row = this.look(this.opened.node);
    const body = this.root.querySelector(".panel-body");
    const at = body.scrollTop;
    this.root.querySelector("h2").textContent = this.opened.node;
    body.replaceChildren(...(row ? this.parts(row) : [element("p", {}, say("panel.gone"))]));
    body.scrollTop = at;
  }

  parts(row) {
    const parts = [element("p", {}, modeMark(row, this.modes), " ", ...flags(row))];
    if (isShared(row)) {
      for (const gpu of row.gpus) {
        const free = counted("panel.free", gpu.memory_units - gpu.memory_units_used);
        parts.push(this.section(row, say("panel.card", { index: gpu.index }), free, bar(gpu), gpu.holdings, gpu.index));
      }
    } else if (row.cards || row.gpus.length) {
      const free = counted("panel.free_cards", row.cards - row.cards_used);
      parts.push(this.section(row, say("panel.cards"), free, slots(row), row.holdings));
      if (!row.gpus.length) parts.push(element("p", { class: "quiet small" }, say("panel.which")));
    }
    if (row.unplaced.length) parts.push(this.section(row, say("panel.unplaced"), "", extras(row), row.unplaced));
    for (const warning of row.warnings) parts.push(element("p", { class: "error" }, icon("alert-triangle"), warning.message));
    for (const drift of row.drift) {
      const values = { key: drift.key, found: drift.found || say("panel.absent"), wanted: drift.wanted || say("panel.absent"), by: drift.by ? ` (${drift.by})` : "" };
      parts.push(element("p", { class: "error tone-warn" }, icon("git-pull-request"), say("panel.drift", values)));
    }
    parts.push(element("p", {}, element("a", { href: nodePage(row, this.addresses), class: "btn btn-plain" }, say("panel.page"))));
    return parts;
  }

  section(row, title, right, drawing, holdings, index = null) {
    const picked = index !== null && this.opened.card === index;
    return element("section", { class: picked ? "panel-card picked" : "panel-card" },
      element("h3", {}, title, element("span", { class: "quiet" }, right)),
      element("span", { class: `card-glyph mode-${row.mode ?? "unknown"}` }, ...drawing),
      holdings.length
        ? element("ul", { class: "holders" }, ...holdings.map((holding, place) => holderLine(holding, place, row, this.addresses)))
        : element("p", { class: "quiet small" }, say("panel.nobody")));
  }
}
