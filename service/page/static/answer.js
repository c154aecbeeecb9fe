// Draws the vote while it grows and the answer once it is there.

import { answerText, byId, el, percent, svg } from "./dom.js";
import { voteText } from "./models.js";

const SHOWN = 10; // candidates; the others are counted in one line
const REASONS = {
  budget: "the whole budget was drawn",
  certainty: "the leader was certain enough",
  confidence: "the answer was confident enough",
  abstained: "the confidence was too low for an answer",
  deadline: "the deadline passed",
  unreadable: "no answer could be read",
};
const PHASES = ["queue", "prefill", "thoughts", "decode"];
const RING = 2 * Math.PI * 26;

export function showWaiting() {
  byId("answer").replaceChildren(
    el("div", { class: "ghost busy", "aria-hidden": "true" }, el("b", {}, "…"), el("i"), el("i"), el("i")),
    el("p", { class: "empty" }, "The first trajectories are thinking …"),
  );
}

// Draws the candidates of a round event.
export function showRound(event, view) {
  const place = frame();
  place.leader.replaceChildren(...leader(event.candidates[0], shareOf(event.candidates[0]), view));
  drawBars(place.bars, event.candidates, view);
}

// Draws the response; `view` has the palette, the known truth and `again`, which asks with the same seed.
export function showResult(response, view) {
  const place = frame();
  const winner = response.candidates[0] ?? { answer: null, share: 0 };
  const shown = response.stop_reason === "abstained" ? abstained(response, winner, view) : leader(winner, confidenceOf(response), view);
  place.leader.replaceChildren(...shown, ...warning(response));
  drawBars(place.bars, response.candidates, view);
  place.facts.replaceChildren(...facts(response, view));
}

// The parts of the answer card, kept between rounds so that bars grow instead of being drawn anew.
function frame() {
  const root = byId("answer");
  if (!root.querySelector(".bars")) {
    root.replaceChildren(
      el("div", { class: "leader" }),
      el("ol", { class: "bars", "aria-label": "Candidates" }),
      el("dl", { class: "facts" }),
    );
  }
  const find = (name) => root.querySelector(`.${name}`);
  return { leader: find("leader"), bars: find("bars"), facts: find("facts") };
}

const shareOf = (candidate) => ({ value: candidate.share, title: `${percent(candidate.share)} of the vote`, text: "so far" });

function confidenceOf(response) {
  if (response.confidence_kind === "calibrated") {
    return {
      value: response.confidence,
      title: `${percent(response.confidence)} likely right`,
      text: "Calibrated: of answers with this value, about so many were right.",
    };
  }
  return {
    value: response.confidence,
    title: `${percent(response.confidence)} of the vote`,
    text: "This model, sampler and vote are not calibrated: it is a share, not a probability.",
  };
}

// The confidence is below what was asked for: the leader is named, but not as the answer.
const abstained = (response, winner, view) => [
  el("p", { class: "value none hue-none", id: "winner" }, "no answer"),
  ring(view.palette.of(winner.answer), {
    ...confidenceOf(response),
    text: `${answerText(winner.answer)} leads, but is less likely right than was asked for.`,
  }),
];

function leader(winner, sure, view) {
  const isNone = winner.answer === null;
  const hue = view.palette.of(winner.answer);
  return [
    el("p", { class: `value ${hue}${isNone ? " none" : ""}`, id: "winner" }, isNone ? "no readable answer" : winner.answer),
    ring(hue, sure),
  ];
}

// A confidence as a part of a ring, with its words beside it.
function ring(hue, sure) {
  const drawn = svg(
    "svg",
    { viewBox: "0 0 64 64", class: hue, "aria-hidden": "true" },
    svg("circle", { cx: 32, cy: 32, r: 26, class: "ring-track" }),
    svg("circle", {
      cx: 32, cy: 32, r: 26, class: "ring", transform: "rotate(-90 32 32)",
      "stroke-dasharray": `${RING * sure.value} ${RING}`,
    }),
  );
  return el("div", { class: "sure" }, drawn, el("div", {}, el("strong", {}, sure.title), el("span", {}, sure.text)));
}

function drawBars(list, candidates, view) {
  const held = new Map([...list.children].map((row) => [row.dataset.answer, row]));
  // Unreadable ones are last whatever their votes, which should be seen.
  const isShown = (candidate, place) => place < SHOWN || candidate.answer === null;
  const rows = candidates.filter(isShown).map((candidate) => {
    const row = held.get(answerText(candidate.answer)) ?? bar(candidate.answer, view);
    const isTrue = view.truth !== null && candidate.answer === view.truth;
    const isLeftOut = view.vote === "checked" && candidate.share === 0 && candidate.answer !== null;
    row.querySelector(".count").replaceChildren(
      el("b", {}, String(candidate.votes)),
      ` ${candidate.votes === 1 ? "vote" : "votes"} · ${isLeftOut ? "false equation" : percent(candidate.share)} `,
      ...(isTrue ? [el("span", { class: "true" }, "✓ true")] : []),
    );
    row.querySelector(".voters").textContent = voters(candidate.members);
    row.title = `mean confidence of its trajectories: ${candidate.confidence.toFixed(2)}`;
    // Set after the row is in the document, so that a new bar grows too.
    requestAnimationFrame(() => row.querySelector(".bar").style.setProperty("--share", candidate.share));
    return row;
  });
  const others = candidates.filter((candidate, place) => !isShown(candidate, place));
  if (others.length) {
    const votes = others.reduce((sum, candidate) => sum + candidate.votes, 0);
    rows.push(el("li", { class: "rest" }, `and ${others.length} more, ${votes} ${votes === 1 ? "vote" : "votes"} together`));
  }
  // Rows that stay are moved only if the order has changed: moving one would end its transition.
  if (rows.some((row, place) => list.children[place] !== row) || list.children.length !== rows.length) {
    list.replaceChildren(...rows);
  }
}

const bar = (answer, view) =>
  el(
    "li",
    { class: view.palette.of(answer), "data-answer": answerText(answer) },
    el("span", { class: `name${answer === null ? " none" : ""}` }, answerText(answer)),
    el("span", { class: "track" }, el("div", { class: "bar", "--share": 0 })),
    el("span", { class: "count" }),
    el("span", { class: "voters" }),
  );

// Of a panel: the members that voted for a candidate, with how many trajectories.
const voters = (members) =>
  Object.entries(members ?? {}).map(([member, votes]) => `${member} ${votes}`).join(" · ");

function facts(response, view) {
  const rows = [
    ["Trajectories", `${response.budget_used} of ${response.budget}`],
    ["Stopped because", REASONS[response.stop_reason] ?? response.stop_reason],
    ...(response.members ? [] : [["Sampler", response.sampler]]),
    ["Vote", voteText(response.vote)],
    ["Seed", el("code", { id: "used-seed" }, String(response.seed)), again(response, view), view.note],
  ];
  if (typeof response.familiarity === "number") rows.push(["Question", familiarity(response)]);
  const found = rows.map(([name, ...values]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...values)));
  return [...found, ...(response.members ? [members(response.members)] : []), times(response.timing_ms)];
}

// What each member of a panel drew, and how long that took.
function members(drawn) {
  const rows = drawn.map(({ member, usage, timing_ms }) =>
    el("li", {}, `${member}: ${usage.trajectories} trajectories, ${milliseconds(timing_ms.total)}`));
  return el("div", { class: "wide" }, el("dt", {}, "Members"), el("dd", {}, el("ul", { class: "members" }, ...rows)));
}

const familiarity = ({ unfamiliar }) => `${unfamiliar ? "unlike" : "like"} those it was calibrated on`;

const warning = (response) => (response.warning ? [el("p", { class: "warning", role: "note" }, response.warning)] : []);

const again = (response, view) =>
  el("button", { type: "button", class: "small", id: "again", onclick: () => view.again(response) }, "Same again");

function times(timing) {
  const parts = PHASES.map((name, place) => ({ name, ms: timing[name], hue: place ? `hue-${[5, 0, 2][place - 1]}` : "hue-none" }));
  const stack = parts.map(({ ms, hue }) => el("i", { class: hue, "--part": Math.max(ms, 0.001) }));
  const legend = parts.map(({ name, ms, hue }) =>
    el("span", {}, el("i", { class: `dot ${hue}` }), `${name} ${milliseconds(ms)}`),
  );
  return el(
    "div",
    { class: "wide" },
    el("dt", {}, "Time"),
    el("dd", { class: "times" },
      el("div", { class: "stack", "aria-hidden": "true" }, ...stack),
      el("div", { class: "legend" }, ...legend, el("b", {}, `total ${milliseconds(timing.total)}`))),
  );
}

const milliseconds = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(ms < 10 ? 1 : 0)} ms`);
