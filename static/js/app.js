// What every page can do: ages, menus, the drawer, rows that can be added, line numbers, and parts that follow
// the server. Everything here is a comfort: the pages work without it, only not by themselves.
import { startAges, tellAll } from "./ages.js";
import { morph } from "./morph.js";
import { say } from "./words.js";

// ---- menus and the drawer
function startMenus() {
  const open = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("click", (event) => {
    for (const menu of open()) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of open()) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    closeDrawer();
  });
}

const drawer = document.getElementById("nav");
const opener = document.querySelector(".drawer-open");

function closeDrawer() {
  if (!drawer?.classList.contains("open")) return;
  drawer.classList.remove("open");
  opener?.focus();
}

function startDrawer() {
  opener?.addEventListener("click", (event) => {
    event.preventDefault();
    drawer.classList.add("open");
    drawer.querySelector("a")?.focus();
  });
  for (const closer of document.querySelectorAll(".drawer-close, .scrim")) {
    closer.addEventListener("click", (event) => {
      event.preventDefault();
      closeDrawer();
    });
  }
}

// ---- rows of keys and values
function startRows() {
  for (const list of document.querySelectorAll("[data-rows]")) {
    const template = list.querySelector("template");
    const add = list.querySelector("[data-add-row]");
    add?.removeAttribute("hidden");
    add?.addEventListener("click", () => {
      const row = template.content.cloneNode(true);
      list.querySelector(".rows").append(row);
      list.querySelector(".rows").lastElementChild.querySelector("input").focus();
    });
    list.addEventListener("click", (event) => {
      const button = event.target.closest("[data-remove-row]");
      if (!button) return;
      button.closest(".row-edit").remove();
      add?.focus();
    });
  }
}

// ---- many boxes at once
function startChecks() {
  for (const button of document.querySelectorAll("[data-check-all]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const boxes = [...document.getElementById(button.dataset.checkAll).querySelectorAll("input[type=checkbox]")];
      const all = boxes.every((box) => box.checked);
      for (const box of boxes) box.checked = !all;
    });
  }
}

// ---- line numbers beside a text
function startEditors() {
  for (const editor of document.querySelectorAll("[data-editor]")) {
    const area = editor.querySelector("textarea");
    const numbers = editor.querySelector(".editor-lines");
    let shown = 0;
    const count = () => {
      const lines = area.value.split("\n").length;
      if (lines === shown) return;
      shown = lines;
      numbers.textContent = Array.from({ length: lines }, (_, index) => index + 1).join("\n");
    };
    const follow = () => {
      numbers.scrollTop = area.scrollTop;
    };
    area.addEventListener("input", count);
    area.addEventListener("scroll", follow);
    count();
  }
}

// ---- a choice that loads another page at once
function startChoices() {
  for (const control of document.querySelectorAll("[data-submit-on-change]")) {
    const before = control.value;
    control.addEventListener("change", () => {
      const guarded = document.getElementById(control.dataset.guards);
      const isEdited = guarded && guarded.value !== guarded.defaultValue;
      if (isEdited && !window.confirm(control.dataset.guardText)) control.value = before;
      else control.form.requestSubmit();
    });
  }
  for (const button of document.querySelectorAll("[data-hide-with-script]")) button.hidden = true;
}

// ---- what is shown once can be copied; browsers allow it over HTTPS and on this machine only
function startCopies() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.querySelector("span").textContent = say("copy.done");
    });
  }
}

// ---- a long text outlives a session that ended, a reload and a click beside; it stays in this tab
function startDrafts() {
  for (const sent of document.querySelectorAll("[data-forget-draft]")) sessionStorage.removeItem(`draft:${sent.dataset.forgetDraft}`);
  const form = document.querySelector("[data-draft]");
  if (!form) return;
  const area = document.getElementById(form.dataset.draft);
  const note = document.getElementById("draft");
  const key = `draft:${window.location.pathname}`;
  const kept = sessionStorage.getItem(key);
  note.hidden = kept === null || kept === area.value;
  area.addEventListener("input", () => sessionStorage.setItem(key, area.value));
  note.querySelector("[data-draft-restore]").addEventListener("click", () => {
    area.value = kept;
    area.dispatchEvent(new Event("input"));
    note.hidden = true;
    area.focus();
  });
  note.querySelector("[data-draft-forget]").addEventListener("click", () => {
    sessionStorage.removeItem(key);
    note.hidden = true;
    area.focus();
  });
}

// ---- parts of the page that follow the server
const SLOWEST_MS = 30_000;
const TOUCHED_MS = 200;
const LEAST_MS = 1_000; // between two looks, however much happens
let lookedAt = -LEAST_MS;

function startRefresh() {
  const seconds = Number(document.body.dataset.refreshSeconds || 0);
  if (!seconds) return;
  let wait = seconds * 1000;
  const round = async () => {
    if (!document.hidden) wait = (await refresh()) ? seconds * 1000 : Math.min(wait * 2, SLOWEST_MS);
    setTimeout(round, wait * (0.9 + Math.random() * 0.2));
  };
  setTimeout(round, wait);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  // Several rings in a row are one look.
  let due = null;
  document.addEventListener("touched", () => {
    if (document.hidden) return;
    due ??= setTimeout(() => {
      due = null;
      refresh();
    }, Math.max(TOUCHED_MS, lookedAt + LEAST_MS - performance.now()));
  });
  // The dashboard has a stream of its own, which tells the same.
  if (document.body.dataset.newsUrl && !document.querySelector("[data-socket-url]")) startNews();
}

// ---- the server says that something changed; while it cannot, the rounds above go on
function startNews(tries = 0) {
  const url = new URL(document.body.dataset.newsUrl, window.location.href);
  url.protocol = window.location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url);
  let next = tries + 1;
  socket.addEventListener("message", (event) => {
    next = 0;
    // After a pause nobody has told what happened meanwhile; a page that has just been read knows it.
    if (JSON.parse(event.data).type === "touched" || tries) document.dispatchEvent(new CustomEvent("touched"));
  });
  socket.addEventListener("close", (event) => {
    if (event.code >= 4401 && event.code <= 4404) return; // signed out, or no right to look: trying again will not help
    setTimeout(() => startNews(next), Math.min(500 * 2 ** next, SLOWEST_MS) * (0.5 + Math.random()));
  });
}

// A sentence on what was just done is true until what it tells of goes on.
const stated = new Map([...document.querySelectorAll("[data-live][data-state]")].map((part) => [part.id, part.dataset.state]));

function dropFlashes() {
  const moved = [...stated].some(([id, state]) => document.getElementById(id)?.dataset.state !== state);
  if (moved) for (const flash of document.querySelectorAll("[data-flash]")) flash.remove();
}

async function refresh() {
  lookedAt = performance.now();
  let page;
  try {
    // A form that was refused is shown at an address that only takes forms.
    const answer = await fetch(document.body.dataset.page || window.location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (!answer.ok) return false;
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return false;
  }
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const newer = page.getElementById(part.id);
    if (newer) morph(part, newer);
  }
  dropFlashes();
  tellAll();
  document.dispatchEvent(new CustomEvent("refreshed"));
  return true;
}

startAges();
startMenus();
startDrawer();
startRows();
startChecks();
startEditors();
startChoices();
startDrafts();
startCopies();
startRefresh();
document.querySelector("[data-focus-first]")?.focus();
