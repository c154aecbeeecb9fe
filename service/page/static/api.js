// Talks to the service: JSON calls, the event stream of /solve, and errors as `ApiError`.

import { heldToken } from "./token.js";

export class ApiError extends Error {
  // `code` is the service's, or `unreachable`, `cut_short`, `bad_response`.
  constructor({ message, code, status = null, param = null, retryAfter = null }) {
    super(message);
    Object.assign(this, { code, status, param, retryAfter });
  }
}

export const listModels = async () => (await read(await send("GET", "v1/models"))).data;

export const solve = async (body, signal) => read(await send("POST", "solve", body, signal));

export const diagnose = async (body, signal) => read(await send("POST", "diagnose", body, signal));

// Yields {name, data} for each event of a streamed question; the last one is its `result`.
export async function* stream(body, signal) {
  const response = await send("POST", "solve", { ...body, stream: true }, signal);
  try {
    for await (const { name, data } of events(response.body)) {
      if (name === "error") throw failure(null, JSON.parse(data), null);
      yield { name, data: JSON.parse(data) };
      if (name === "result") return;
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
  }
  throw new ApiError({ code: "cut_short", message: "the connection ended before the answer came" });
}

// Parses server-sent events as this service sends them: `event:` and `data:` lines, then an empty one.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const found = /^event: (.*)\ndata: (.*)$/su.exec(block);
      if (found) yield { name: found[1], data: found[2] };
    }
  }
}

async function send(method, path, body, signal) {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  if (heldToken()) headers.Authorization = `Bearer ${heldToken()}`;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ code: "unreachable", message: "the server does not answer" });
  }
  if (response.ok) return response;
  const seconds = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  throw failure(response.status, await response.json().catch(() => null), Number.isNaN(seconds) ? null : seconds);
}

async function read(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ code: "bad_response", message: "the answer is not JSON" });
  }
}

function failure(status, body, retryAfter) {
  const { message = `the server answered ${status}`, code = "bad_response", param = null } = body?.error ?? {};
  return new ApiError({ message, code, param, status, retryAfter });
}
