// One colour for each answer of a question, the same in every view of it.

const HUES = 8;

export class Palette {
  #given = new Map();

  // The CSS class that sets `--hue`; beyond the last colour, answers share it.
  of(answer) {
    if (answer === null) return "hue-none";
    if (!this.#given.has(answer)) this.#given.set(answer, Math.min(this.#given.size, HUES - 1));
    return `hue-${this.#given.get(answer)}`;
  }
}

let latest = { question: null, palette: null };

export function paletteOf(question) {
  if (latest.question !== question) latest = { question, palette: new Palette() };
  return latest.palette;
}
