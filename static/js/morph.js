// Turns one piece of the page into a newer one in place: what is focused, open or under the pointer stays.

const isKeyed = (node) => node.nodeType === Node.ELEMENT_NODE && node.id;

function same(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) return false;
  return a.nodeType !== Node.ELEMENT_NODE || a.id === b.id;
}

function attributes(from, to) {
  for (const { name } of [...from.attributes]) {
    // What a person opened or closed is theirs; what ages.js wrote is true already.
    if (!to.hasAttribute(name) && name !== "open" && !(name === "title" && from.dataset.ago !== undefined)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (name === "open" || (name === "title" && from.dataset.ago !== undefined)) continue;
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
}

/** Make `from` look like `to`. Children with an id are matched by it, the others by their place. */
export function morph(from, to) {
  if (from.isEqualNode(to)) return;
  attributes(from, to);
  if (from.nodeName === "TIME" && from.dataset.ago !== undefined) return;
  if (from.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(from.nodeName)) return;
  const byId = new Map([...from.childNodes].filter(isKeyed).map((node) => [node.id, node]));
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const known = isKeyed(wanted) ? byId.get(wanted.id) : null;
    if (known) {
      if (known !== place) from.insertBefore(known, place);
      else place = place.nextSibling;
      morph(known, wanted);
    } else if (place && !isKeyed(place) && same(place, wanted)) {
      const next = place.nextSibling;
      if (place.nodeType === Node.ELEMENT_NODE) morph(place, wanted);
      else if (place.nodeValue !== wanted.nodeValue) place.nodeValue = wanted.nodeValue;
      place = next;
    } else {
      from.insertBefore(document.importNode(wanted, true), place);
    }
  }
  const kept = new Set([...to.childNodes].filter(isKeyed).map((node) => node.id));
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
  for (const [id, node] of byId) if (!kept.has(id) && node.parentNode === from) node.remove();
}
