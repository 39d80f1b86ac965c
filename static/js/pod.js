// Follows a log: reads its end again and again while the page is looked at, and keeps the last line in sight.
import { say } from "./words.js";

const EVERY_MS = 2_000;
const log = document.getElementById("log");
const button = document.querySelector("[data-follow]");
const label = button.querySelector("span");
const plain = label.textContent;
let following = false;

async function read() {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  try {
    const answer = await fetch(log.dataset.url);
    const text = await answer.text();
    const shown = answer.ok ? text : say("log.failed", { reason: text });
    if (log.textContent !== shown && (text || !answer.ok)) log.textContent = shown;
  } catch (error) {
    log.textContent = say("log.failed", { reason: error.message });
  }
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function round() {
  if (!following) return;
  if (!document.hidden) await read();
  setTimeout(round, EVERY_MS);
}

button.hidden = false;
button.addEventListener("click", () => {
  following = !following;
  button.setAttribute("aria-pressed", String(following));
  label.textContent = following ? say("log.following") : plain;
  if (following) round();
});
log.scrollTop = log.scrollHeight;
