// The form that asks for a key.
import { at } from "./dom.js";
import * as session from "./session.js";

const section = at("sign-in");
const form = section.querySelector("form");
const key = at("key");
const fault = section.querySelector("[role=alert]");
const button = form.querySelector("button");

// `enter` shows what the key opens; if that is nothing, it asks again.
export function askForKey(reason, enter) {
  section.hidden = false;
  say(reason);
  form.onsubmit = (event) => {
    event.preventDefault();
    trySigningIn(enter);
  };
  key.focus();
}

async function trySigningIn(enter) {
  button.disabled = true;
  say("");
  try {
    await session.signIn(key.value.trim());
    section.hidden = true;
    key.value = "";
    enter();
  } catch (problem) {
    say(inWords(problem));
    key.select();
  }
  button.disabled = false;
}

function say(words) {
  fault.textContent = words;
  fault.hidden = !words;
}

const inWords = ({ status, message }) =>
  status === 401 ? "This key is not valid: it is mistyped, has expired or was revoked." : message;
