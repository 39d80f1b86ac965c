// Draws one node of the dashboard from its wire row, as templates/gpupools/parts/board_node.html does.
import { element, icon, isShared, nodeGlyphs } from "./glyphs.js";
import { say } from "./words.js";

export const percent = (part, whole) => (whole ? `${Math.floor((part * 100) / whole)}%` : "—");
export const counted = (key, n) => say(n === 1 ? `${key}.one` : `${key}.many`, { n });

export const nodePage = (row, addresses) => addresses.nodeUrl.replace("__node__", encodeURIComponent(row.node));

export function modeMark(row, modes) {
  const facts = modes[row.mode];
  const name = facts ? row.mode : say("mode.undeclared");
  return element("span", { class: `mode mode-${facts ? row.mode : "unknown"}`, title: facts?.title },
    element("span", { class: "mode-code" }, facts?.code ?? "??"),
    element("span", {}, name, ...(facts?.shared ? [" ", element("span", { class: "policy" }, row.policy)] : [])));
}

export function flags(row) {
  const flag = (tone, symbol, text) => element("span", { class: `state tone-${tone} small` }, icon(symbol), text);
  const found = [];
  if (!row.ready) found.push(flag("bad", "circle-x", say("node.notready")));
  if (row.unschedulable) found.push(flag("warn", "ban", say("node.cordoned")));
  if (row.wrong.length) {
    const wrong = flag("bad", "circle-x", counted("node.wrong", row.wrong.length));
    wrong.title = row.wrong.join("; ");
    found.push(wrong);
  }
  if (row.drift.length) found.push(flag("warn", "git-pull-request", counted("node.drift", row.drift.length)));
  if (row.warnings.length) found.push(flag("warn", "alert-triangle", counted("node.warnings", row.warnings.length)));
  return found;
}

/** `addresses` has nodeUrl, `modes` the code, title and kind of each mode. */
export function drawNode(row, addresses, modes) {
  const model = row.model ? ` · ${say("node.cards", { cards: row.cards + row.cards_missing, model: row.model })}` : "";
  const shared = isShared(row);
  const [used, total] = shared ? [row.memory_units_used, row.memory_units] : [row.cards_used, row.cards];
  return element("li", { class: "board-node", id: `node-${row.node}`, "data-node": row.node },
    element("div", { class: "who" },
      element("a", { href: nodePage(row, addresses), "data-node-link": "" }, row.node),
      element("span", { class: "under" }, `${row.pool || say("node.no_pool")}${model}`),
      ...flags(row)),
    element("div", { class: "mode-cell" }, modeMark(row, modes)),
    element("div", { class: "cards-cell" }, nodeGlyphs(row, nodePage(row, addresses))),
    row.cards_missing && !row.cards && !shared
      ? element("div", { class: "sum" }, "—", element("span", { class: "under" }, counted("cards.missing", row.cards_missing)))
      : element("div", { class: "sum" }, `${used}/${total}`,
        element("span", { class: "under" }, say(shared ? "sum.units" : "sum.cards", { percent: percent(used, total) }))));
}
