// The bearer token: asked for when the server wants one, kept in this tab only.

import { byId } from "./dom.js";

const KEY = "gts-token";

export const heldToken = () => sessionStorage.getItem(KEY) ?? "";

// Shows the field; `then` runs once a token is given.
export function askForToken(then) {
  const [panel, form, field, hint] = ["token-panel", "token-form", "token", "token-hint"].map(byId);
  const wasWrong = heldToken() !== "";
  hint.textContent = wasWrong
    ? "The server does not know this token. Give another one; it is kept in this tab only."
    : "It is kept in this tab only, and forgotten when the tab is closed.";
  field.setAttribute("aria-describedby", hint.id);
  field.setAttribute("aria-invalid", String(wasWrong));
  sessionStorage.removeItem(KEY);
  panel.hidden = false;
  field.focus();
  form.onsubmit = (event) => {
    event.preventDefault();
    // A header takes visible ASCII only; anything else is no token of this server.
    if (!/^[\x21-\x7e]+$/u.test(field.value.trim())) {
      hint.textContent = "A token is one word of plain letters, digits and signs.";
      field.setAttribute("aria-invalid", "true");
      return;
    }
    sessionStorage.setItem(KEY, field.value.trim());
    field.value = "";
    panel.hidden = true;
    then();
  };
}
