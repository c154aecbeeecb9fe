// What the trajectories of a text reasoner or a panel wrote: each text once, the most frequent first.

import { answerText, byId, el, percent } from "./dom.js";
import { closeThoughts } from "./thoughts.js";

const SHOWN = 12; // texts; the others are counted in one line

export function showTexts({ trajectories, members }, palette) {
  closeThoughts();
  if (!trajectories?.length) return;
  const groups = grouped(trajectories);
  const items = groups.slice(0, SHOWN).map((group) => item(group, palette));
  if (groups.length > SHOWN) items.push(el("li", { class: "rest" }, `and ${groups.length - SHOWN} more texts`));
  byId("texts").replaceChildren(...items);
  byId("texts").hidden = false;
  byId("thoughts-hint").textContent =
    `${members ? "What the members wrote" : "This model thinks in text"}: ${groups.length} different ` +
    `${groups.length === 1 ? "text" : "texts"} in ${trajectories.length} trajectories, the most frequent first.`;
}

function grouped(trajectories) {
  const found = new Map();
  for (const each of trajectories) {
    const key = JSON.stringify([each.member, each.text]);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(each);
  }
  return [...found.values()].sort((a, b) => b.length - a.length);
}

function item(group, palette) {
  const [{ answer, text, confidence, member }] = group;
  const count = `${group.length} ${group.length === 1 ? "trajectory" : "trajectories"}`;
  const facts = [member, count, `confidence ${percent(confidence)}`];
  return el(
    "li",
    { class: palette.of(answer) },
    el("p", {}, el("b", {}, answerText(answer)), ` ${facts.filter(Boolean).join(" · ")}`),
    el("pre", {}, text.trim() || "nothing"),
  );
}
