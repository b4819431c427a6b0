// The form of a new request: what it sends, and what is said about its fields.
import { at, counted, make, part } from "../common/dom.js";
import { newKey } from "./api.js";
import { refusalInWords } from "./words.js";

const STYLES = ["watercolor", "sketch", "ink", "pixel art", "neon", "low poly", "noir"];
const PROMPT_CHARS_MAX = 4000;
const STYLE_CHARS_MAX = 100;
const SEED_MAX = 2 ** 32 - 1;
const [SIDE_MIN, SIDE_MAX] = [64, 2048];
const TWICE_MS = 2000; // a second click within this time is not meant
const FIELDS = ["prompt", "negativePrompt", "style", "width", "height", "count", "seed", "provider"];
const NAMES_OF_TEXTS = { prompt: "prompt", style: "style", negativePrompt: "negative prompt" }; // which are checked
const TEXT_ALONE = ["openai"]; // providers that get the negative prompt as a part of the prompt: it is checked, too
const SIDE_RULE = `A whole number of pixels, ${SIDE_MIN} to ${SIDE_MAX}.`;
const MAY_NOT = "This key may only read: generating takes the scope generation:write.";
const RULES = {
  prompt: `1 to ${PROMPT_CHARS_MAX} characters.`,
  negativePrompt: `At most ${PROMPT_CHARS_MAX} characters.`,
  style: `At most ${STYLE_CHARS_MAX} characters.`,
  width: SIDE_RULE,
  height: SIDE_RULE,
  count: "1 to 4 images.",
  seed: `A whole number, 0 to ${SEED_MAX}, or nothing for a random one.`,
};

const form = at("composer");
const fields = form.elements;
const button = at("generate");
const refusal = at("refusal");
const { cost, providers } = document.body.dataset;
const creditsFor = (count) => count * Number(cost);
let sent = { text: "", key: "", at: 0 }; // the last request
let isSending = false;
let mayGenerate = true;
let refused = []; // the fields that were refused together: a change of one may be enough
let available = null;

// `send(wanted, key)` creates a generation.
export function startComposer(send) {
  form.onsubmit = (event) => {
    event.preventDefault();
    submit(send);
  };
  form.onkeydown = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    submit(send);
  };
}

export function showAvailable(credits) {
  available = credits.available;
  showCost();
}

// Whether the key that has signed in may generate. The server decides; the page says so before.
export function showMayGenerate(may) {
  mayGenerate = may;
  button.disabled = !may;
  showCost();
}

export const choosePrompt = (prompt) => fill({ prompt });

// The settings of an earlier request.
export function fill({ prompt, provider, ...given }) {
  const { negativePrompt = "", style = "", width = 1024, height = 1024, count = 1, seed = "" } = given;
  const values = { prompt, negativePrompt, style, width, height, seed, count: String(count) };
  for (const [name, value] of Object.entries(values)) fields[name].value = value;
  const size = `${width}x${height}`;
  fields.size.value = [...fields.size].some(({ value }) => value === size) ? size : "custom";
  if (provider && [...fields.provider.options].some(({ value }) => value === provider)) fields.provider.value = provider;
  at("more-options").open ||= Boolean(negativePrompt || seed !== "");
  clearFaults();
  update();
  fields.prompt.focus({ preventScroll: true });
  form.scrollIntoView({ block: "start", behavior: "smooth" });
}

export function clearComposer() {
  form.reset();
  clearFaults();
  update();
}

// -- sending -------------------------------------------------------------------------------------------------------

async function submit(send) {
  if (isSending || !mayGenerate) return;
  clearFaults();
  const wanted = read();
  if (showFaults(faultsOf(wanted))) return;
  setSending(true);
  const key = keyFor(JSON.stringify(wanted));
  try {
    await send(wanted, key);
    sent.at = Date.now();
  } catch (problem) {
    sent.isOpen = problem.status === 0; // the server may have it: the next try is the same request
    if (problem.status !== 401) explain(problem, wanted);
  }
  setSending(false);
}

// The button stays enabled: one that is disabled loses the focus.
function setSending(is) {
  isSending = is;
  button.classList.toggle("busy", is);
}

function keyFor(text) {
  const isSame = text === sent.text && (sent.isOpen || Date.now() - sent.at < TWICE_MS);
  if (!isSame) sent = { text, key: newKey(), at: 0 };
  return sent.key;
}

// What is left empty is left out: the service has a default for it.
function read() {
  const [width, height] = isCustom() ? [fields.width.value, fields.height.value] : fields.size.value.split("x");
  const wanted = {
    prompt: fields.prompt.value,
    negativePrompt: fields.negativePrompt.value.trim(),
    style: fields.style.value.trim(),
    width: number(width),
    height: number(height),
    count: number(fields.count.value),
    seed: number(fields.seed.value),
    provider: providers.includes(" ") ? fields.provider.value : "",
  };
  return Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== ""));
}

const isCustom = () => fields.size.value === "custom";

// NaN is no number of the form: it is found below.
const number = (text) => (text.trim() === "" ? "" : /^\d+$/.test(text.trim()) ? Number(text) : NaN);

// -- what is wrong -------------------------------------------------------------------------------------------------

function faultsOf({ prompt = "", negativePrompt = "", style = "", width, height, seed = 0 }) {
  const isSide = (side) => side >= SIDE_MIN && side <= SIDE_MAX;
  const faults = {
    prompt: prompt.trim() ? tooLong("prompt", prompt, PROMPT_CHARS_MAX) : "Say what the image should show.",
    negativePrompt: tooLong("negativePrompt", negativePrompt, PROMPT_CHARS_MAX),
    style: tooLong("style", style, STYLE_CHARS_MAX),
    width: !isSide(width) && RULES.width,
    height: !isSide(height) && RULES.height,
    seed: !(seed <= SEED_MAX) && RULES.seed,
  };
  return Object.fromEntries(Object.entries(faults).filter(([, fault]) => fault));
}

// Characters are counted as the server counts them: an emoji is one.
function tooLong(name, text, most) {
  const length = [...text].length;
  return length > most && `${RULES[name]} These are ${length}.`;
}

function explain(problem, wanted) {
  const { field } = problem;
  const fault = /^invalid request body/.test(problem.message) ? (RULES[field] ?? problem.message) : problem.message;
  const isRefused = problem.code === "prompt_rejected";
  if (!isRefused && FIELDS.includes(field)) return showFaults({ [field]: fault });
  const texts = checkedTexts(wanted);
  if (isRefused) showRefused(texts);
  const { title, text } = refusalInWords(problem, inWords(texts));
  part(refusal, "title").textContent = title;
  part(refusal, "text").textContent = text;
  refusal.hidden = false;
}

const checkedTexts = (wanted) =>
  Object.keys(NAMES_OF_TEXTS).filter(
    (name) => wanted[name] && (name !== "negativePrompt" || TEXT_ALONE.includes(wanted.provider ?? providers)),
  );

const inWords = (texts) =>
  texts.map((name) => NAMES_OF_TEXTS[name]).join(", ").replace(/, ([^,]*)$/, " or $1");

// The server does not say which of them it was.
function showRefused(texts) {
  refused = texts;
  const fault = texts.length > 1 ? `The ${inWords(texts)} is not allowed.` : "This prompt is not allowed.";
  showFaults(Object.fromEntries(texts.map((name) => [name, fault])));
}

// Whether there are any. The first of them gets the focus.
function showFaults(faults) {
  const names = FIELDS.filter((name) => faults[name]);
  for (const name of names) mark(name, faults[name]);
  if (!names.length) return false;
  const first = fields[names[0]];
  (first instanceof RadioNodeList ? first[0] : first).focus();
  return true;
}

function mark(name, fault) {
  const line = at(`${name}-fault`);
  line.textContent = fault;
  line.hidden = false;
  at(name)?.setAttribute("aria-invalid", "true");
  line.closest("details")?.setAttribute("open", "");
  if (name === "width" || name === "height") [fields.size.value] = ["custom"];
  update();
}

function unmark(name) {
  if (!FIELDS.includes(name)) return; // such as the choice of a size
  at(`${name}-fault`).hidden = true;
  at(name)?.removeAttribute("aria-invalid");
}

// Its value is another one.
function changed(name) {
  const isOfRefused = refused.includes(name);
  (isOfRefused ? refused : [name]).forEach(unmark);
  if (isOfRefused) refused = [];
  refusal.hidden = true;
}

function clearFaults() {
  refused = [];
  FIELDS.forEach(unmark);
  refusal.hidden = true;
}

// -- what depends on what is filled in -----------------------------------------------------------------------------

function update() {
  at("custom-size").hidden = !isCustom();
  for (const chip of at("styles").children) chip.ariaPressed = String(chip.textContent === fields.style.value.trim());
  showCost();
}

function showCost() {
  const credits = creditsFor(Number(fields.count.value));
  const isShort = available !== null && credits > available;
  const short = isShort ? `This needs more than you have: ${counted(available, "credit")} available` : "";
  const reason = mayGenerate ? short : MAY_NOT;
  part(button, "cost").textContent = counted(credits, "credit");
  at("shortcut").hidden = Boolean(reason);
  at("short").hidden = !reason;
  if (at("short").textContent !== reason) at("short").textContent = reason;
}

for (const style of STYLES) {
  const chip = make("button", { type: "button", textContent: style, ariaPressed: "false" });
  chip.onclick = () => {
    fields.style.value = fields.style.value.trim() === style ? "" : style;
    changed("style");
    update();
  };
  at("styles").append(chip);
}
for (const name of providers.split(" ")) fields.provider.append(make("option", { value: name }, name));
at("provider-field").hidden = !providers.includes(" ");
at("random").onclick = () => {
  fields.seed.value = "";
  changed("seed");
  fields.seed.focus();
};
form.oninput = ({ target }) => {
  changed(target.name);
  update();
};
// In a column that is too low for them, they are scrolled to.
at("more-options").ontoggle = ({ target }) => target.open && target.scrollIntoView({ block: "nearest" });
update();
