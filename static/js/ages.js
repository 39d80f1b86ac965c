// Keeps every <time data-ago> true, and puts the instant in the reader's own zone on hover.
import { say } from "./words.js";

// The server's clock counts, or a wrong clock here would make every number look old.
const rendered = Date.parse(document.documentElement.dataset.now ?? "");
const skewMs = Number.isNaN(rendered) ? 0 : Date.now() - rendered;

/** Milliseconds since 1970 by the server's clock. */
export const now = () => Date.now() - skewMs;

/** Say an age in the largest whole unit, as gpupools/web/templatetags.py does. */
export function age(instantMs, atMs = now()) {
  const total = Math.trunc((atMs - instantMs) / 1000);
  const seconds = Math.abs(total);
  // What was set to 90 days is still called that a moment later.
  const round = (count) => Math.floor(total < 0 ? count + 0.05 : count);
  let amount;
  if (seconds < 60) amount = say("age.s", { count: seconds });
  else if (seconds < 3600) amount = say("age.min", { count: round(seconds / 60) });
  else if (seconds < 86400) amount = say("age.h", { count: round(seconds / 3600) });
  else amount = say("age.d", { count: round(seconds / 86400) });
  return say(total < 0 ? "age.ahead" : "age.ago", { amount });
}

const absolute = new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
  dateStyle: "medium",
  timeStyle: "long",
});
const clock = new Intl.DateTimeFormat(document.documentElement.lang || undefined, { timeStyle: "medium", hourCycle: "h23" });

/** The time of day of an instant, in the reader's zone. */
export const timeOfDay = (instantMs) => clock.format(instantMs);

function tell(element) {
  const instant = Date.parse(element.dateTime);
  if (Number.isNaN(instant)) return;
  const said = age(instant);
  if (element.textContent !== said) element.textContent = said;
  const title = absolute.format(instant);
  if (element.title !== title) element.title = title;
}

export function tellAll(root = document) {
  for (const element of root.querySelectorAll("time[data-ago]")) tell(element);
}

export function startAges() {
  tellAll();
  setInterval(() => document.hidden || tellAll(), 1000);
}
