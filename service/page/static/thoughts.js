// The thoughts of an answered question: asks for their paths and readings, and keeps both views in step.

import { solve } from "./api.js";
import { answerText, byId, el } from "./dom.js";
import { clearError, showError } from "./errors.js";
import { thoughtsText } from "./models.js";
import { PathPlot } from "./paths.js";
import { readingTable } from "./readings.js";

const MOST = 64; // trajectories that the service traces
const HINT = "Where each trajectory's thoughts went, and what they say.";
let wasOpened = false; // then the next question shows its thoughts by itself
let asked = 0;

export function closeThoughts() {
  asked += 1;
  byId("thoughts").hidden = byId("thoughts-button").hidden = byId("texts").hidden = true;
  byId("thoughts-hint").textContent = "They can be seen once the question is answered.";
  clearError(byId("thoughts-error"));
}

// Says what a model that was just chosen will show; what an earlier question showed stays.
export function waitForQuestion(model) {
  const isFree = ["thoughts", "thoughts-button", "texts"].every((id) => byId(id).hidden);
  if (isFree) byId("thoughts-hint").textContent = thoughtsText(model);
}

// Offers the thoughts of a response; `question` is the body that was asked.
export function offerThoughts(question, response, palette) {
  closeThoughts();
  byId("thoughts-hint").textContent = HINT;
  const button = byId("thoughts-button");
  const open = () => load(question, response, palette, open);
  button.onclick = open;
  button.hidden = false;
  if (wasOpened) open();
}

async function load(question, response, palette, again) {
  wasOpened = true;
  const own = (asked += 1);
  const { stop, deadline_ms, abstain_below, ...rest } = question;
  const budget = response.budget === 1 ? 1 : Math.max(2, Math.min(response.budget_used, MOST));
  byId("thoughts-button").hidden = true;
  byId("thoughts-hint").textContent = "The same trajectories think once more, and are watched …";
  clearError(byId("thoughts-error"));
  try {
    // The same seed gives the same trajectories, so what is drawn is what has voted.
    const traced = await solve({ ...rest, budget, seed: response.seed, include: ["paths", "readings"] });
    if (own === asked) show(traced, palette);
  } catch (error) {
    if (own !== asked) return;
    byId("thoughts-hint").textContent = HINT;
    byId("thoughts-button").hidden = false;
    showError(error, again, byId("thoughts-error"));
  }
}

function show({ paths, readings }, palette) {
  const select = byId("trajectory");
  const trajectories = paths.trajectories;
  const choose = (place) => {
    select.value = String(place);
    plot.select(place);
    byId("trajectory-facts").replaceChildren(...facts(trajectories[place]));
    byId("readings").replaceChildren(
      readingTable(readings[place].thoughts, (thought) => plot.light(thought)),
    );
  };
  const plot = new PathPlot(paths, palette, choose);
  select.replaceChildren(
    ...trajectories.map((each, place) => el("option", { value: place }, `${nameOf(each)}: ${answerText(each.answer)}`)),
  );
  select.onchange = () => choose(Number(select.value));
  byId("paths").replaceChildren(plot.node, legend(trajectories, palette));
  const [x, y] = paths.explained;
  const count = trajectories.length - 1;
  byId("thoughts-hint").textContent =
    `${count || "No"} sampled ${count === 1 ? "trajectory" : "trajectories"} and the deterministic one, on the two ` +
    `directions in which thoughts differ most: ${Math.round((x + y) * 100)}% of their variance (PCA).`;
  byId("thoughts").hidden = false;
  choose(0);
}

const nameOf = ({ index }) => (index < 0 ? "deterministic" : `trajectory ${index}`);

const facts = (trajectory) =>
  [
    ["Text", el("code", {}, trajectory.text.trim() || "nothing")],
    ["Log-probability", trajectory.logprob.toFixed(3)],
    ["Confidence", trajectory.confidence.toFixed(3)],
  ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));

function legend(trajectories, palette) {
  const counts = new Map();
  for (const { answer, index } of trajectories) {
    if (index >= 0) counts.set(answer, (counts.get(answer) ?? 0) + 1);
  }
  const ranked = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8);
  return el(
    "ul",
    { class: "legend", "aria-label": "Colours of the answers" },
    ...ranked.map(([answer, count]) =>
      el("li", { class: palette.of(answer) }, el("i", { class: "dot" }), `${answerText(answer)} (${count})`),
    ),
    el("li", {}, el("i", { class: "mark-deterministic" }), "deterministic"),
    el("li", {}, el("i", { class: "mark-median" }), "geometric median"),
  );
}
