// The page: loads the models, asks, and hands what comes back to the views.

import { listModels, stream } from "./api.js";
import { showResult, showRound, showWaiting } from "./answer.js";
import { showCalls } from "./calls.js";
import { offerSamplers, watchComparison } from "./compare.js";
import { answerText, byId, el } from "./dom.js";
import { clearError, showError } from "./errors.js";
import { knownTruth, offerModels, readForm, watchForm } from "./form.js";
import { describe, isLatent, ownModels, voteOf } from "./models.js";
import { paletteOf } from "./palette.js";
import { showTexts } from "./texts.js";
import { closeThoughts, offerThoughts, waitForQuestion } from "./thoughts.js";

let chosen = null; // the model
let running = null; // the AbortController of the question that is being asked

async function loadModels() {
  try {
    const models = ownModels(await listModels());
    clearError();
    offerModels(models, (model) => {
      chosen = model;
      offerSamplers(model);
      waitForQuestion(model);
      byId("about").textContent = describe(model);
    });
  } catch (error) {
    byId("loading").textContent = "";
    showError(error, loadModels);
  }
}

// What the form says: a request, its model, and the true answer where that is known.
const readQuestion = () => ({ body: readForm(), model: chosen, truth: knownTruth() });

// Asks what the form says, or a `question` once more; `before` is a response that should come again.
async function ask(question = null, before = null) {
  running?.abort();
  const own = (running = new AbortController());
  clearError();
  try {
    const asked = question ?? readQuestion();
    const { body, model, truth } = asked;
    const again = (response) => ask({ ...asked, body: { ...body, seed: response.seed } }, response);
    const view = { palette: paletteOf(body.question), truth, again, note: null, vote: voteOf(body, model) };
    begin(body);
    // What a text reasoner wrote comes with the answer; thoughts are traced only if they are looked at.
    const include = isLatent(model) ? undefined : ["trajectories"];
    for await (const { name, data } of stream({ ...body, include }, own.signal)) {
      if (name === "round") {
        showRound(data, view);
        progress(data.budget_used, body.budget, data.candidates[0]);
      } else {
        view.note = before && el("span", { class: "note" }, isSame(before, data) ? "✓ same votes as before" : "other votes than before");
        finish(asked, data, view);
      }
    }
  } catch (error) {
    if (own !== running) return; // another question has taken its place
    if (error.name === "AbortError") byId("answer").replaceChildren(el("p", { class: "empty" }, "Cancelled."));
    else {
      byId("answer").replaceChildren();
      showError(error, () => ask());
    }
    byId("progress-text").textContent = "";
  } finally {
    if (own === running) {
      running = null;
      byId("progress").hidden = byId("cancel-button").hidden = true;
    }
  }
}

function begin(body) {
  showWaiting();
  closeThoughts();
  byId("call").hidden = true;
  byId("cancel-button").hidden = false;
  byId("progress").hidden = false;
  byId("progress").value = 0;
  byId("progress-text").textContent = `0 of ${body.budget} trajectories`;
  // On a narrow screen the answer is below the form.
  const isBelow = matchMedia("(max-width: 56rem)").matches;
  byId("answer-title").scrollIntoView({ block: isBelow ? "start" : "nearest" });
}

function progress(used, budget, leader) {
  byId("progress").value = used / budget;
  byId("progress-text").textContent = `${used} of ${budget} trajectories, ${answerText(leader.answer)} leads`;
}

function finish({ body, model }, response, view) {
  showResult(response, view);
  byId("progress-text").textContent = response.answer === null ? "no answer" : `answered: ${response.answer}`;
  showCalls({ ...body, seed: response.seed });
  if (isLatent(model)) offerThoughts(body, response, view.palette);
  else showTexts(response, view.palette);
}

const isSame = (before, after) => JSON.stringify(before.candidates) === JSON.stringify(after.candidates);

watchForm(() => ask());
watchComparison();
byId("cancel-button").addEventListener("click", () => running?.abort());
loadModels();
