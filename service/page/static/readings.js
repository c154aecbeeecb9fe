// What the thoughts of one trajectory read like: a table of their likeliest tokens.

import { el, percent } from "./dom.js";

// `onThought` is told which thought the pointer or the focus is on, and null when it leaves.
export function readingTable(thoughts, onThought) {
  const rows = thoughts.map((tokens, thought) =>
    el(
      "tr",
      { onpointerenter: () => onThought(thought), onpointerleave: () => onThought(null) },
      el("th", { scope: "row" }, String(thought + 1)),
      ...tokens.map(({ token, probability }) =>
        el(
          "td",
          { "--share": probability, title: `${visible(token)} ${percent(probability)}` },
          el("span", {}, visible(token)),
          el("small", {}, percent(probability)),
        ),
      ),
    ),
  );
  const count = thoughts[0]?.length ?? 1;
  return el(
    "table",
    { class: "readings" },
    el("caption", {}, "What each thought reads like: its likeliest tokens"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "thought"), el("th", { scope: "colgroup", colspan: count }, "tokens"))),
    el("tbody", {}, ...rows),
  );
}

// White space would not be seen.
const visible = (token) => token.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
