// The same question as a curl command and in Python, to copy. Never with the token itself.

import { byId, el } from "./dom.js";
import { heldToken } from "./token.js";

export function showCalls(body) {
  const url = new URL(".", location.href).href.replace(/\/$/u, "");
  byId("calls").replaceChildren(...block("curl", curl(url, body)), ...block("Python", python(url, body)));
  const place = byId("call");
  // Beside the form there is room for it; on a narrow screen it would push the thoughts away.
  if (place.hidden) place.open ||= matchMedia("(min-width: 56rem)").matches;
  place.hidden = false;
}

export function curl(url, body) {
  const token = heldToken() ? ` -H "Authorization: Bearer $GTS_TOKEN"` : "";
  return `curl ${url}/solve${token} -H 'Content-Type: application/json' -d ${shellQuoted(JSON.stringify(body))}`;
}

export function python(url, { question, ...options }) {
  const token = heldToken() ? `, token=os.environ["GTS_TOKEN"]` : "";
  const set = Object.entries(options).filter(([, value]) => value !== undefined); // JSON leaves the others out too
  const given = set.map(([name, value]) => `, ${name}=${literal(value)}`);
  return [
    ...(token ? ["import os", ""] : []),
    "from service.client import Client",
    "",
    `with Client(${literal(url)}${token}) as client:`,
    `    solved = client.solve(${literal(question)}${given.join("")})`,
    "    print(solved.answer, solved.confidence)",
  ].join("\n");
}

const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// JSON is Python, but for three words; a string of JSON is one of Python as it stands.
function literal(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, held]) => `${JSON.stringify(name)}: ${literal(held)}`).join(", ")}}`;
}

function block(name, text) {
  const button = el("button", { type: "button", class: "small", "aria-label": `Copy the ${name} call` }, "Copy");
  button.addEventListener("click", () => copy(text, button));
  return [
    el("div", { class: "split" }, el("h3", {}, name), button),
    el("pre", { tabindex: 0, "aria-label": `The ${name} call` }, el("code", {}, text)),
  ];
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // The clipboard is closed to pages without TLS; then the text is selected instead.
    getSelection().selectAllChildren(button.parentElement.nextElementSibling);
    button.textContent = "Selected: press Ctrl C";
  }
  setTimeout(() => (button.textContent = "Copy"), 2500);
}
