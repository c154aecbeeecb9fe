// What /v1/models says, in the terms of this page: which samplers a model has, and its name in words.

const KINDS = { coconut: "COCONUT", codi: "CODI", cot: "chain of thought in text", panel: "a panel" };

// `NAME@SAMPLER:BUDGET` are other names of the same models, for clients that can set nothing else.
export const ownModels = (listed) => listed.filter((model) => !model.id.includes("@"));

export const isLatent = (model) => (model.thoughts ?? 0) > 0;

// The default one, `gts`, first.
const learnedOf = (model) =>
  (model.samplers ?? []).map((sampler) => sampler.spec).sort((a, b) => (b === "gts") - (a === "gts"));

// The model's own default first.
export function samplersOf(model) {
  const others = isLatent(model)
    ? ["gaussian:1.0", "gaussian:0.5", "dropout:0.1", "dropout:0.5"]
    : ["token:1.0", "token:0.7", "dropout:0.1"];
  return [...new Set([...defaultOf(model), ...learnedOf(model), ...others, "deterministic"])];
}

const defaultOf = (model) => (model.default_sampler ? [model.default_sampler] : []);

// Two to four specs that show the most when compared.
export const comparedByDefault = (model) => [
  ...new Set([...defaultOf(model), ...(isLatent(model) ? ["gaussian:1.0", "dropout:0.1"] : ["token:1.0", "dropout:0.1"])]),
];

const VOTES = {
  majority: "majority",
  confidence: "weighted by confidence",
  best: "most confident",
  centroid: "nearest the median thought",
  checked: "true equations only",
  likelihood: "likeliest reasoning",
  verifier: "weighted by the verifier",
};

// The vote of a request. A stop by certainty counts votes, which goes with the majority.
export const voteOf = ({ vote, stop }, model) => vote ?? (stop?.certainty ? "majority" : model.default_vote);

export const voteText = (vote) => VOTES[vote] ?? vote;

// What can be seen of a model's thoughts before a question is asked.
export const thoughtsText = (model) =>
  isLatent(model)
    ? "Ask a question first: then you can see where each trajectory's thoughts went, and what they say."
    : "Ask a question first: then you can read what each trajectory wrote.";

// Budgets that the slider offers: powers of two, and the limit.
export function budgetsOf(model) {
  const limit = model.limits?.budget ?? 256;
  const powers = [];
  for (let budget = 1; budget < limit; budget *= 2) powers.push(budget);
  return [...powers, limit];
}

export function describe(model) {
  const parts = [`${model.id}: ${KINDS[model.kind] ?? model.kind ?? "a model"}`];
  if (model.panel) parts.push(model.panel.members.map((each) => `${each.model}:${each.sampler}`).join(", "));
  else if (isLatent(model)) parts.push(`${model.thoughts} thoughts of width ${model.width}`);
  else parts.push("no latent thoughts");
  if (model.reproducible) parts.push(`one seed gives the same ${model.reproducible} on this machine`);
  if (model.fingerprint) parts.push(`fingerprint ${model.fingerprint.slice(0, 12)}`);
  return parts.join(" · ");
}
