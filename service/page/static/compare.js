// Compares two to four samplers on the question of the form: POST /diagnose, drawn.

import { diagnose } from "./api.js";
import { thoughtChart, voteChart } from "./charts.js";
import { answerText, byId, el, percent } from "./dom.js";
import { clearError, showError } from "./errors.js";
import { knownTruth, readForm } from "./form.js";
import { comparedByDefault, isLatent, samplersOf } from "./models.js";
import { paletteOf } from "./palette.js";

const [FEWEST, MOST] = [2, 4];
const BUDGETS = [8, 16, 32, 64, 128];
const REGIMES = {
  "under-exploration": ["under-explores", "Its trajectories hardly leave the deterministic one."],
  "over-exploration": ["over-explores", "It goes far, and does not come closer to the true answer."],
  useful: ["useful", "It goes far enough, and comes closer to the true answer."],
};

const ESTIMATE = " What a sampler does with a single question is only an estimate of how it explores.";

let running = null;
let offered = null; // the model
let isPanel = false; // then every member is measured, with its own sampler

export function offerSamplers(model) {
  offered = model;
  isPanel = Boolean(model.panel);
  const chosen = new Set(comparedByDefault(model));
  const specs = isPanel ? [] : samplersOf(model).filter((spec) => spec !== "deterministic");
  byId("samplers").replaceChildren(
    el("legend", {}, isPanel ? "Every member, with its own sampler" : `Samplers, ${FEWEST} to ${MOST}`),
    ...specs.map((spec) =>
      el("label", { class: "chip" }, el("input", { type: "checkbox", value: spec, checked: chosen.has(spec) }), spec),
    ),
  );
  const usual = isLatent(model) ? 32 : 16; // text takes longer
  const limit = model.limits?.budget ?? BUDGETS.at(-1);
  const budgets = BUDGETS.filter((budget) => budget <= limit);
  byId("compare-budget").replaceChildren(
    ...budgets.map((budget) => el("option", { value: budget, selected: budget === usual }, `${budget} trajectories`)),
  );
  restrict();
}

export function watchComparison() {
  byId("samplers").addEventListener("change", restrict);
  byId("question").addEventListener("input", () => {
    const truth = knownTruth();
    if (truth !== null) byId("truth").value = truth;
    else if (byId("truth").dataset.from !== undefined) byId("truth").value = "";
    if (truth === null) delete byId("truth").dataset.from;
    else byId("truth").dataset.from = "example";
  });
  byId("compare-cancel").addEventListener("click", () => running?.abort());
  byId("compare").addEventListener("submit", (event) => {
    event.preventDefault();
    compare();
  });
}

const chosenSamplers = () => [...byId("samplers").querySelectorAll(":checked")].map((box) => box.value);

// At the limit, the boxes that are left cannot be checked.
function restrict() {
  const count = chosenSamplers().length;
  for (const box of byId("samplers").querySelectorAll("input:not(:checked)")) box.disabled = count >= MOST;
  byId("compare-button").disabled = count < FEWEST && !isPanel;
}

async function compare() {
  running?.abort();
  const own = (running = new AbortController());
  const box = byId("compare-error");
  clearError(box);
  setBusy(true);
  byId("compare-status").textContent = "The samplers explore …";
  try {
    const model = offered;
    const { question, seed } = readForm();
    const answer = byId("truth").value.trim() || undefined;
    const body = { question, model: model.id, seed, answer, samplers: isPanel ? undefined : chosenSamplers(), budget: Number(byId("compare-budget").value) };
    const found = await diagnose(body, own.signal);
    show(found, paletteOf(question), isLatent(model));
    byId("compare-status").textContent =
      `${found.budget} trajectories each, seed ${found.seed}. Without a sampler the answer is ${answerText(found.deterministic_answer)}.${found.samplers.some((each) => each.regime) ? ESTIMATE : ""}`;
  } catch (error) {
    if (own !== running) return; // another comparison has taken its place
    byId("compare-status").textContent = error.name === "AbortError" ? "Cancelled." : "";
    if (error.name !== "AbortError") showError(error, compare, box);
  } finally {
    if (own === running) setBusy(false);
  }
}

function setBusy(isBusy) {
  byId("compare-progress").hidden = byId("compare-cancel").hidden = !isBusy;
  byId("comparison").setAttribute("aria-busy", String(isBusy));
}

function show(found, palette, hasThoughts) {
  const most = (name) => Math.max(0, ...found.samplers.flatMap((each) => each[name] ?? []));
  const scales = { snr: most("snr"), sigma: most("sigma") };
  byId("comparison").replaceChildren(...found.samplers.map((each) => card(each, scales, palette, hasThoughts)));
}

function card(found, scales, palette, hasThoughts) {
  const last = found.vote_curve.at(-1);
  const [regime, why] = REGIMES[found.regime] ?? [found.regime, ""];
  return el(
    "article",
    { class: "sampler" },
    el("div", { class: "split" }, el("h3", {}, found.sampler), found.regime && el("span", { class: `regime ${found.regime}`, title: why }, regime)),
    el("p", { class: `outcome ${palette.of(last.answer)}` }, el("b", {}, answerText(last.answer)), ` with ${percent(last.share)} of ${last.budget}`, verdict(last)),
    el("h4", {}, "The leader's share as the budget grows"),
    voteChart(found.vote_curve, palette),
    el("dl", { class: "measures" }, ...measures(found)),
    ...(found.snr
      ? [
          el("h4", {}, "SNR of each thought: rms of the mean over rms of the spread"),
          thoughtChart(found.snr, scales.snr, "SNR"),
          el("h4", {}, "Spread σ of each thought"),
          thoughtChart(found.sigma, scales.sigma, "Spread"),
        ]
      : hasThoughts ? [el("p", { class: "hint" }, "Not learned: it has no mean and spread of its own for each thought.")] : []),
  );
}

const verdict = ({ majority_correct: isRight }) =>
  isRight === null ? "" : el("span", { class: isRight ? "true" : "false" }, isRight ? "✓ right" : "✗ wrong");

const measures = (found) =>
  [
    ["Unique answers", String(found.unique_answers)],
    ["Shift of the answer (JS)", found.js_divergence.toFixed(3)],
    ["Gain (SG)", found.sampling_gain === null ? "needs the true answer" : found.sampling_gain.toFixed(2)],
    ["Gain of the whole answer", found.sampling_gain_whole_answer === null ? "–" : found.sampling_gain_whole_answer.toFixed(2)],
    ["Trajectories that gain", found.gain_share === null ? "–" : percent(found.gain_share)],
  ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
