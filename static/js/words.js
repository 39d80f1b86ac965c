// The sentences of the script, translated by the server and put into the page as data.
const text = document.getElementById("words")?.textContent;
const words = text ? JSON.parse(text) : {};

/** Fill the named places of a sentence: say("age.s", {count: 3}). */
export function say(key, values = {}) {
  const sentence = words[key] ?? key;
  return sentence.replace(/%\((\w+)\)s/g, (_, name) => String(values[name] ?? "")).replaceAll("%%", "%");
}
