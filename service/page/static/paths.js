// Draws trajectories as paths through their thoughts. The nearest one to the pointer is chosen.

import { answerText, svg } from "./dom.js";

const WIDTH = 720;
const MARGIN = 26;
const HEIGHTS = [340, 560];

export class PathPlot {
  #paths;
  #palette;
  #places; // of every thought in the drawing: [trajectory][thought] = [x, y]
  #drawn;
  #top = svg("g", { class: "chosen" });
  #tip = svg("g", { class: "tip", "aria-hidden": "true" });

  constructor(paths, palette, onChoose) {
    this.#paths = paths;
    this.#palette = palette;
    const { place, height } = scale([...paths.trajectories.flatMap((each) => each.points), ...paths.median]);
    this.#places = paths.trajectories.map((each) => each.points.map(place));
    // The deterministic path is drawn last, above the others.
    this.#drawn = paths.trajectories.map((each, number) => this.#draw(each, this.#places[number]));
    const [deterministic, ...sampled] = this.#drawn;
    this.node = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${height}`, class: "plot", role: "img", "aria-label": this.#label() },
      ...sampled, deterministic, drawMedian(paths.median.map(place)), this.#top, this.#tip,
    );
    const hover = (event) => {
      const found = this.#nearest(event);
      if (found) {
        onChoose(found.number);
        this.#showTip(found);
      } else this.#tip.replaceChildren();
    };
    this.node.addEventListener("pointermove", hover);
    this.node.addEventListener("pointerdown", hover);
    this.node.addEventListener("pointerleave", () => this.#tip.replaceChildren());
  }

  // Draws one trajectory above all others, with its thoughts numbered.
  select(number) {
    const { answer } = this.#paths.trajectories[number];
    const places = this.#places[number];
    this.#top.setAttribute("class", `chosen ${this.#palette.of(answer)}`);
    this.#top.replaceChildren(
      svg("polyline", { points: places.join(" "), class: "halo" }),
      svg("polyline", { points: places.join(" ") }),
      ...places.map(([x, y]) => svg("circle", { cx: x, cy: y, r: 7.5 })),
      ...places.map(([x, y], thought) => svg("text", { x, y: y + 3.2 }, String(thought + 1))),
    );
  }

  // Enlarges one thought of every trajectory; null for none.
  light(thought) {
    for (const path of this.#drawn) {
      path.querySelectorAll("circle").forEach((dot, place) => dot.classList.toggle("lit", place === thought));
    }
  }

  #draw({ answer, index }, places) {
    const kind = index < 0 ? "deterministic" : `sampled ${this.#palette.of(answer)}`;
    return svg(
      "g",
      { class: kind },
      svg("polyline", { points: places.join(" ") }),
      ...places.map(([x, y]) => svg("circle", { cx: x, cy: y, r: 2.6 })),
    );
  }

  #nearest(event) {
    const box = this.node.getBoundingClientRect();
    const shrink = WIDTH / box.width;
    const at = [(event.clientX - box.left) * shrink, (event.clientY - box.top) * shrink];
    let best = { distance: 24 * Math.max(1, shrink) };
    this.#places.forEach((places, number) =>
      places.forEach((place, thought) => {
        const distance = Math.hypot(place[0] - at[0], place[1] - at[1]);
        if (distance < best.distance) best = { distance, number, thought, place };
      }),
    );
    return best.place ? best : null;
  }

  #showTip({ number, thought, place: [x, y] }) {
    const { index, answer, logprob, confidence, text } = this.#paths.trajectories[number];
    const lines = [
      `${index < 0 ? "deterministic" : `trajectory ${index}`}, thought ${thought + 1}`,
      `${text.trim().slice(0, 40)} → ${answerText(answer)}`,
      `log-probability ${logprob.toFixed(2)}, confidence ${confidence.toFixed(2)}`,
    ];
    const width = 18 + 6.6 * Math.max(...lines.map((line) => line.length));
    const left = Math.max(4, Math.min(x + 14, WIDTH - width - 4));
    const top = y > 90 ? y - 78 : y + 16;
    this.#tip.replaceChildren(
      svg("rect", { x: left, y: top, width, height: 62, rx: 7 }),
      ...lines.map((line, row) => svg("text", { x: left + 10, y: top + 19 + 18 * row }, line)),
    );
  }

  #label() {
    const [first] = this.#paths.trajectories;
    return (
      `Paths of ${this.#paths.trajectories.length} trajectories through ${first.points.length} thoughts, ` +
      "coloured by answer. The list beside it chooses one to read."
    );
  }
}

function drawMedian(places) {
  return svg(
    "g",
    { class: "median" },
    svg("polyline", { points: places.join(" ") }),
    ...places.map(([x, y]) => svg("path", { d: `M${x} ${y - 6}l6 6-6 6-6-6z` })),
  );
}

// One scale for both axes, so that distances can be compared; the height follows the data.
function scale(points) {
  const range = (axis) => {
    const values = points.map((point) => point[axis]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [[left, right], [bottom, top]] = [range(0), range(1)];
  const [wide, high] = [Math.max(right - left, 1e-6), Math.max(top - bottom, 1e-6)];
  const inner = WIDTH - 2 * MARGIN;
  const height = Math.min(Math.max((inner * high) / wide + 2 * MARGIN, HEIGHTS[0]), HEIGHTS[1]);
  const factor = Math.min(inner / wide, (height - 2 * MARGIN) / high);
  const round = (value) => Math.round(value * 10) / 10;
  const place = ([x, y]) => [
    round(WIDTH / 2 + (x - (left + right) / 2) * factor),
    round(height / 2 - (y - (bottom + top) / 2) * factor),
  ];
  return { place, height: round(height) };
}
