// Elements, and the words of a page: counts, sizes, times.

const rounded = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const at = (id) => document.getElementById(id);
export const part = (element, name) => element.querySelector(`[data-part="${name}"]`);
export const action = (element, name) => element.querySelector(`[data-action="${name}"]`);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Hides it, or shows it. A focus that it has goes to `next`: it would be lost.
export function hide(element, isHidden, next) {
  if (isHidden && element === document.activeElement) next?.focus({ preventScroll: true });
  element.hidden = isHidden;
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${rounded.format(count / 1e3)} kB` : `${rounded.format(count / 1e6)} MB`;
}

export const pixels = ({ width, height }) => `${width} × ${height}`;
export const kind = ({ contentType }) => contentType.split("/").at(-1).toUpperCase();
export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
export const moment = (time) => new Date(time).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
