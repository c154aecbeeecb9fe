// Two small charts of a comparison: the vote as the budget grows, and a number for each thought.

import { answerText, percent, svg } from "./dom.js";

const WIDTH = 280;
const [LEFT, RIGHT, TOP, BOTTOM] = [36, 10, 10, 22];

// `points` are those of a vote curve: budget, answer, share, majority_correct.
export function voteChart(points, palette) {
  const height = 150;
  const tall = height - TOP - BOTTOM;
  const first = LEFT + 12; // a ring around the first point would cover the numbers of the axis
  const room = WIDTH - RIGHT - first;
  const x = (place) => first + (points.length > 1 ? (room * place) / (points.length - 1) : room / 2);
  const y = (share) => TOP + tall * (1 - share);
  const places = points.map((point, place) => [x(place), y(point.share)]);
  const said = points.map((point) => `${point.budget}: ${answerText(point.answer)} with ${percent(point.share)}`);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": `The leader by budget. ${said.join("; ")}` },
    ...[0, 0.5, 1].flatMap((share) => [
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share), class: "grid" }),
      svg("text", { x: LEFT - 5, y: y(share) + 3.5, class: "end" }, percent(share)),
    ]),
    svg("polyline", { points: places.join(" "), class: "line" }),
    ...places.map(([left, top], place) => {
      const { answer, budget, majority_correct: isRight, share } = points[place];
      return svg(
        "g",
        { class: palette.of(answer) },
        isRight ? svg("circle", { cx: left, cy: top, r: 7.5, class: "right" }) : null,
        svg("circle", { cx: left, cy: top, r: 4.5, class: "point" }, svg("title", {}, `${answerText(answer)}: ${percent(share)} of ${budget}`)),
        svg("text", { x: left, y: height - 6 }, String(budget)),
      );
    }),
  );
}

// A bar for each thought, on a scale that goes to `most`.
export function thoughtChart(values, most, name) {
  const height = 84;
  const inner = [WIDTH - LEFT - RIGHT, height - TOP - BOTTOM];
  const step = inner[0] / values.length;
  const tall = (value) => (most > 0 ? (inner[1] * value) / most : 0);
  const said = values.map((value) => value.toFixed(2)).join(", ");
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart", role: "img", "aria-label": `${name} of each thought: ${said}` },
    svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: TOP + inner[1], y2: TOP + inner[1], class: "grid" }),
    svg("text", { x: LEFT - 5, y: TOP + 5, class: "end" }, most.toFixed(most < 10 ? 1 : 0)),
    svg("text", { x: LEFT - 5, y: TOP + inner[1] + 3, class: "end" }, "0"),
    ...values.flatMap((value, thought) => [
      svg(
        "rect",
        { x: LEFT + step * thought + step * 0.15, width: step * 0.7, y: TOP + inner[1] - tall(value), height: tall(value), rx: 2, class: "column" },
        svg("title", {}, `thought ${thought + 1}: ${value.toFixed(3)}`),
      ),
      svg("text", { x: LEFT + step * (thought + 0.5), y: height - 7 }, String(thought + 1)),
    ]),
  );
}
