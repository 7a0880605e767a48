// Numbers, durations and times as people read them, and small helpers to build elements.
// Everything that comes from data is set as text, never as markup.

export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]], parts = [];
  let rest = Math.round(seconds);
  for (const [size, unit] of units) {
    if (rest >= size || parts.length) parts.push([Math.floor(rest / size), unit]);
    rest %= size;
  }
  return parts.slice(0, 2).filter(([n]) => n).map(([n, unit]) => `${n} ${unit}`).join(" ");
}

// Four significant digits; `exact` has all of them. A loss that diverges is a whole number of 300 digits.
export const number = (x) => (typeof x !== "number" ? String(x) : Number.isSafeInteger(x) ? x.toLocaleString("en") : Number(x.toPrecision(4)).toString());
export const exact = (x) => (Number.isSafeInteger(x) ? x.toLocaleString("en") : String(x));
// At an axis of Chart.js, which writes 5.000000E-5 itself; it leaves some ticks of a logarithm out.
export function tick(value, index, ticks) {
  if (this.type === "logarithmic" && !Chart.Ticks.formatters.logarithmic.call(this, value, index, ticks)) return "";
  const rounded = Number(value.toPrecision(12)), size = Math.abs(rounded);
  return size && (size < 1e-3 || size >= 1e15) ? rounded.toExponential().replace("+", "") : rounded.toLocaleString("en", { maximumSignificantDigits: 12 });
}
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// element("a", {href: "/", class: "x"}, "text", child)
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  made.append(...children);
  return made;
}

export function times(root = document) {
  for (const time of root.querySelectorAll("time[data-relative]")) {
    const at = new Date(time.dateTime), age = (Date.now() - at) / 1000;
    time.title = at.toLocaleString();
    const far = age > 86400 ? at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : null;
    time.textContent = far ?? (age < 5 ? "just now" : `${age < 60 ? `${Math.floor(age)} s` : duration(age).split(" ").slice(0, 2).join(" ")} ago`);
  }
}
