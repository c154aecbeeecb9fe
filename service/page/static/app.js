// The page: loads the models, asks, and hands what comes back to the views.

import { listModels, stream } from "./api.js";
import { showResult, showRound, showWaiting } from "./answer.js";
import { showCalls } from "./calls.js";
import { offerSamplers, watchComparison } from "./compare.js";
import { answerText, byId, el } from "./dom.js";
import { clearError, showError } from "./errors.js";
import { knownTruth, offerModels, readForm, setSeed, watchForm } from "./form.js";
import { describe, ownModels } from "./models.js";
import { paletteOf } from "./palette.js";
import { closeThoughts, offerThoughts } from "./thoughts.js";

let chosen = null; // the model
let running = null; // the AbortController of the question that is being asked

async function loadModels() {
  try {
    const models = ownModels(await listModels());
    clearError();
    offerModels(models, (model) => {
      chosen = model;
      offerSamplers(model);
      byId("about").textContent = describe(model);
    });
  } catch (error) {
    showError(error, loadModels);
  }
}

// Asks what the form says, or `body`; `before` is an earlier response that should come again.
async function ask(body = null, before = null) {
  running?.abort();
  const own = (running = new AbortController());
  clearError();
  try {
    const asked = body ?? readForm();
    const view = { palette: paletteOf(asked.question), truth: knownTruth(), again: sameAgain, note: null };
    begin(asked);
    for await (const { name, data } of stream(asked, own.signal)) {
      if (name === "round") {
        showRound(data, view);
        progress(data.budget_used, asked.budget, data.candidates[0]);
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

function begin(asked) {
  showWaiting();
  closeThoughts();
  byId("call").hidden = true;
  byId("cancel-button").hidden = false;
  byId("progress").hidden = false;
  byId("progress").value = 0;
  byId("progress-text").textContent = `0 of ${asked.budget} trajectories`;
  // On a narrow screen the answer is below the form.
  byId("answer-title").scrollIntoView({ block: "nearest" });
}

function progress(used, budget, leader) {
  byId("progress").value = used / budget;
  byId("progress-text").textContent = `${used} of ${budget} trajectories, ${answerText(leader.answer)} leads`;
}

function finish(asked, response, view) {
  showResult(response, view);
  byId("progress-text").textContent = `answered: ${answerText(response.answer)}`;
  showCalls({ ...asked, seed: response.seed });
  offerThoughts(asked, response, chosen, view.palette);
}

function sameAgain(response) {
  setSeed(response.seed);
  return ask(null, response);
}

const isSame = (before, after) => JSON.stringify(before.candidates) === JSON.stringify(after.candidates);

watchForm(() => ask());
watchComparison();
byId("cancel-button").addEventListener("click", () => running?.abort());
loadModels();
