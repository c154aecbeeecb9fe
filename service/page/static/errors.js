// Says what went wrong in words, and offers what can be done about it.

import { byId, el } from "./dom.js";
import { askForToken } from "./token.js";

const TITLES = {
  queue_full: "The server is busy",
  not_ready: "No worker is ready",
  draining: "The server is shutting down",
  deadline: "The deadline passed",
  worker_failed: "The worker failed on this question",
  internal: "The server made a mistake",
  unauthorized: "A token is needed",
  model_not_found: "There is no such model",
  body_too_large: "The question is too large",
  unreachable: "The server cannot be reached",
  cut_short: "The connection was lost",
};
const ADVICE = {
  queue_full: "Too many trajectories wait already.",
  not_ready: "A worker is starting; it takes some seconds.",
  draining: "It answers open questions and takes no new ones.",
  deadline: "No trajectory was finished in time. Give it more time, or none at all.",
  worker_failed: "Its log says why.",
  internal: "Its log says what happened.",
  unauthorized: "Give it above; then ask again.",
  unreachable: "Is it running? Is the network there?",
  cut_short: "Ask again with the same seed: the answer will be the same.",
};
// The control of each field that the service may find wrong.
const CONTROLS = {
  question: "question", model: "model", sampler: "sampler", budget: "budget", vote: "vote",
  stop: "stop", abstain_below: "abstain", seed: "seed", deadline_ms: "deadline", answer: "truth", samplers: "samplers",
};

let countdown = 0;

export function clearError(box = byId("error")) {
  clearInterval(countdown);
  box.hidden = true;
  box.replaceChildren();
  for (const marked of document.querySelectorAll("[aria-invalid='true']")) marked.removeAttribute("aria-invalid");
}

// Shows an error in `box`; `again` repeats what failed.
export function showError(error, again, box = byId("error")) {
  clearError(box);
  const title = TITLES[error.code] ?? (error.param ? "Something in the question form is wrong" : "That did not work");
  const retry = el("button", { type: "button", class: "small", onclick: again }, "Ask again");
  const wait = el("p");
  box.replaceChildren(
    el("strong", {}, title),
    el("p", {}, [ADVICE[error.code], sentence(error.message)].filter(Boolean).join(" ")),
  );
  if (error.retryAfter) {
    box.append(wait);
    count(error.retryAfter, wait, retry);
  }
  const isFixable = error.param === null && error.code !== "unauthorized";
  if (isFixable) box.append(el("div", { class: "row" }, retry));
  box.hidden = false;
  const control = byId(CONTROLS[error.param]);
  if (control) {
    control.setAttribute("aria-invalid", "true");
    control.closest("details")?.setAttribute("open", "");
    control.focus();
  }
  if (error.code === "unauthorized") askForToken(again);
}

function count(seconds, wait, retry) {
  const until = performance.now() + seconds * 1000;
  const tell = () => {
    const left = Math.ceil((until - performance.now()) / 1000);
    retry.disabled = left > 0;
    wait.textContent = left > 0 ? `Try again in ${left} second${left > 1 ? "s" : ""}.` : "You can try again now.";
    if (left <= 0) clearInterval(countdown);
  };
  tell();
  countdown = setInterval(tell, 250);
}

// A sentence that begins with the name of a field keeps it as it is.
const capital = (text) => (/^\w*_/u.test(text) ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`);

const sentence = (text) => `${capital(text)}${/[.!?]$/u.test(text) ? "" : "."}`;
