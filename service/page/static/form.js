// The question form: fills its controls from a model, and reads them as the body of a POST /solve.

import { byId, el } from "./dom.js";
import { budgetsOf, samplersOf, voteText } from "./models.js";

const CUSTOM = "custom";
const DEFAULT_BUDGET = 32;

const fields = Object.fromEntries(
  ["question", "model", "sampler", "custom", "vote", "stop", "budget", "seed", "deadline", "abstain", "deterministic"].map(
    (id) => [id, byId(id)],
  ),
);
let budgets = [DEFAULT_BUDGET];

export function offerModels(models, onChange) {
  fields.model.replaceChildren(...models.map((model) => el("option", { value: model.id }, model.id)));
  const choose = () => {
    const model = models.find((each) => each.id === fields.model.value) ?? models[0];
    offerModel(model);
    onChange(model);
  };
  fields.model.onchange = choose;
  choose();
  byId("ask-button").disabled = false;
  byId("loading").textContent = "";
}

function offerModel(model) {
  // The members of a panel have their own samplers, and a request must not name one.
  const options = model.panel
    ? [el("option", { value: "" }, "each member's own")]
    : samplersOf(model).map((spec) => el("option", { value: spec }, spec));
  if (!model.panel) options.push(el("option", { value: CUSTOM }, "another …"));
  fields.sampler.replaceChildren(...options);
  budgets = budgetsOf(model);
  fields.budget.max = budgets.length - 1;
  const closest = budgets.findIndex((budget) => budget >= DEFAULT_BUDGET);
  fields.budget.value = closest < 0 ? budgets.length - 1 : closest;
  const [{ value: vote }, usual] = [fields.vote, model.default_vote ?? "majority"];
  const others = (model.votes ?? []).filter((each) => each !== usual);
  fields.vote.replaceChildren(
    el("option", { value: "" }, `${voteText(usual)} (default)`),
    ...others.map((each) => el("option", { value: each }, voteText(each))),
  );
  fields.vote.value = others.includes(vote) ? vote : "";
  fields.deterministic.disabled = Boolean(model.panel);
  offerExamples(model.examples ?? []);
  adjust();
}

function offerExamples(examples) {
  const choose = (example) => () => {
    fields.question.value = example.question;
    fields.question.dataset.example = example.question;
    fields.question.dataset.truth = example.answer;
    fields.question.dispatchEvent(new Event("input"));
    fields.question.focus();
  };
  byId("examples").replaceChildren(
    ...examples.map((example) =>
      el("button", { type: "button", onclick: choose(example) }, el("span", {}, example.question)),
    ),
  );
  byId("examples-field").hidden = examples.length === 0;
}

// The answer of the chosen example, while its text is unchanged; else null.
export function knownTruth() {
  const { example, truth } = fields.question.dataset;
  return example !== undefined && example === fields.question.value ? truth : null;
}

export function watchForm(onAsk) {
  for (const field of Object.values(fields)) {
    field.addEventListener("input", adjust);
    // A field that was marked wrong is given another chance.
    field.addEventListener("input", () => field.removeAttribute("aria-invalid"));
  }
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    onAsk();
  });
  fields.question.addEventListener("keydown", (event) => {
    const isReady = !byId("ask-button").disabled;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && isReady) onAsk();
  });
}

function adjust() {
  const budget = budgets[fields.budget.value] ?? DEFAULT_BUDGET;
  const isGreedy = fields.sampler.value === "deterministic" || budget === 1;
  const text = isGreedy ? "one trajectory, unperturbed" : `${budget} trajectories`;
  byId("budget-text").textContent = text;
  fields.budget.setAttribute("aria-valuetext", text);
  byId("custom-field").hidden = fields.sampler.value !== CUSTOM;
}

// The body of the request; raises what the service would say of a number that is none.
export function readForm() {
  const body = {
    question: fields.question.value,
    model: fields.model.value || undefined,
    sampler: (fields.sampler.value === CUSTOM ? fields.custom.value.trim() : fields.sampler.value) || undefined,
    budget: budgets[fields.budget.value],
    vote: fields.vote.value || undefined,
  };
  if (fields.stop.value) {
    const [kind, level] = fields.stop.value.split(" ");
    body.stop = { [kind]: Number(level) };
  }
  if (fields.seed.value.trim()) body.seed = wholeNumber(fields.seed.value, "seed", "the seed");
  if (fields.deadline.value.trim()) {
    body.deadline_ms = wholeNumber(fields.deadline.value, "deadline_ms", "the deadline");
  }
  if (fields.abstain.value) body.abstain_below = Number(fields.abstain.value);
  if (fields.deterministic.checked && !fields.deterministic.disabled) body.include_deterministic = true;
  return body;
}

function wholeNumber(text, param, name) {
  const value = Number(text.trim());
  // Beyond this a number of JavaScript is not exact, and the seed would be another one.
  if (/^\d+$/u.test(text.trim()) && Number.isSafeInteger(value)) return value;
  throw Object.assign(new Error(`${name} must be a whole number, at most ${Number.MAX_SAFE_INTEGER}`), {
    code: "invalid_field", param, retryAfter: null,
  });
}
