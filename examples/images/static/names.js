// The names of the files. This browser keeps them: the service has none.

const KEY = "gallery.names";

const read = () => JSON.parse(localStorage.getItem(KEY) ?? "{}");
let names = read();

export const nameOf = (id) => names[id] ?? `Image ${id.slice(-6)}`;
export const isNamed = (id) => Object.hasOwn(names, id);

export const keepName = (id, name) => save({ ...read(), [id]: name });

export function dropName(id) {
  const { [id]: _, ...others } = read(); // other windows have changed them too
  save(others);
}

function save(changed) {
  names = changed;
  localStorage.setItem(KEY, JSON.stringify(names));
}
