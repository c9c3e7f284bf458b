// Data, theme, colours, and the panels: each draws itself when it comes into view, and again when what it shows changes.
const DATA = JSON.parse(document.getElementById("chart-data").textContent);
const EVIDENCE = JSON.parse(document.getElementById("evidence-data").textContent);
const ARMS = new Map(DATA.arms.map((arm) => [arm.name, arm]));
const DEPTHS = [...new Set(DATA.sources.flatMap((source) => source.depths))].sort((a, b) => a - b);
// Only these buttons: plotly's others would offer to upload the chart.
const CONFIG = { displaylogo: false, plotlyServerURL: "", responsive: true, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
const NARROW = 640; // px
const panels = new Map(); // id -> {node, draw, dirty, visible, state}

// Plotly reads a little HTML in its texts: a name must not be taken for it.
const safe = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const unique = (values) => [...new Set(values)];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => document.documentElement.dataset.theme === "dark";
const percent = (value) => (value === null ? null : 100 * value);

function element(name, attributes = {}, content = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = content;
  return node;
}

function channels(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function mix(colour, other, share) {
  const [a, b] = [channels(colour), channels(other)];
  return "#" + a.map((c, i) => Math.round((1 - share) * c + share * b[i]).toString(16).padStart(2, "0")).join("");
}

// Colour = connection, shade = depth: the deepest stands out most against the paper, in both themes.
function shade(name, depth) {
  return shadeOf(ARMS.get(name).colour, depth);
}

function shadeOf(given, depth) {
  const base = isDark() ? mix(given, "#ffffff", given === "#000000" ? 0.8 : 0.35) : given;
  if (depth === undefined || DEPTHS.length < 2) return base;
  const t = DEPTHS.indexOf(depth) / (DEPTHS.length - 1);
  const faint = mix(base, css("--paper"), Math.max(0, 0.62 - t) * (isDark() ? 0.7 : 0.85));
  return mix(faint, isDark() ? "#ffffff" : "#000000", Math.max(0, t - 0.62) * 0.9);
}

function lineOf(name, depth, width = 2) {
  return { color: shade(name, depth), dash: ARMS.get(name).dash, width };
}

// Square roots of percent: 0 has a place, and small errors have room.
const ROOT_TICKS = [0, 1, 5, 10, 25, 50, 75, 100];
const root = (value) => (value === null ? null : Math.sqrt(Math.max(0, value)));
const rootAxis = (title) => ({ title: { text: title }, tickvals: ROOT_TICKS.map(Math.sqrt), ticktext: ROOT_TICKS.map(String), range: [-0.35, 10.25], zeroline: false });

// log(1 + step), so that the first updates have room and step 0 a place.
const logStep = (step) => Math.log10(1 + step);
function stepAxis(largest) {
  const ticks = [0, 1, 10, 100, 1000, 10000, 100000, 1000000].filter((step) => step < 0.75 * largest);
  ticks.push(largest);
  return { title: { text: "updates" }, tickvals: ticks.map(logStep), ticktext: ticks.map((t) => t.toLocaleString("en")), zeroline: false };
}

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const power = (k) => (k === 0 ? "1" : k === 1 ? "10" : k === -1 ? "0.1" : "10" + [...String(k)].map((c) => SUPERSCRIPTS[c]).join(""));
// An axis of log10 values that are computed here, with whole decades as ticks (or 1, 2, 5 steps where it is short).
function decadeAxis(title, low, high) {
  const [from, to] = [low - 0.05 * (high - low) - 0.02, high + 0.05 * (high - low) + 0.02];
  const every = Math.max(1, Math.ceil((to - from) / 8));
  let ticks = [];
  for (let k = Math.ceil(from / every) * every; k <= to; k += every) ticks.push([k, power(k)]);
  if (to - from < 2) {
    ticks = [];
    for (let k = Math.floor(from); k <= to; k++) for (const m of [1, 2, 5]) ticks.push([k + Math.log10(m), Number((m * 10 ** k).toPrecision(2)).toString()]);
  }
  ticks = ticks.filter(([at]) => at >= from && at <= to);
  return { title: { text: title }, range: [from, to], tickvals: ticks.map(([at]) => at), ticktext: ticks.map(([, word]) => word), zeroline: false };
}

// Panels side by side with common axes. keys: their titles. Returns a layout with axes, and the axis names of each panel.
function facets(keys, width, height, xAxis, yAxis, most = 3) {
  const columns = width < NARROW ? 1 : keys.length === 4 && most === 3 ? 2 : Math.min(keys.length, most);
  const rows = Math.ceil(keys.length / columns);
  const gap = { x: 0.035, y: 0.16 / rows + 0.02 };
  const layout = { annotations: [], height: rows * height + 60 };
  const axes = keys.map((key, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const suffix = i === 0 ? "" : String(i + 1);
    const [w, h] = [(1 - gap.x * (columns - 1)) / columns, (1 - gap.y * (rows - 1)) / rows];
    const [x0, y1] = [column * (w + gap.x), 1 - row * (h + gap.y)];
    const lowest = i + columns >= keys.length;
    layout["xaxis" + suffix] = { ...base(), ...xAxis, domain: [x0, x0 + w], anchor: "y" + suffix, title: lowest ? xAxis.title : { text: "" } };
    layout["yaxis" + suffix] = { ...base(), ...yAxis, domain: [Math.max(0, y1 - h), y1], anchor: "x" + suffix, title: column === 0 ? yAxis.title : { text: "" }, showticklabels: column === 0 };
    if (i > 0) Object.assign(layout["yaxis" + suffix], { matches: "y" });
    if (i > 0) Object.assign(layout["xaxis" + suffix], { matches: "x" });
    if (key) layout.annotations.push({ text: safe(key), xref: "paper", yref: "paper", x: x0, y: y1, xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 12.5, color: css("--ink") } });
    return { xaxis: "x" + suffix, yaxis: "y" + suffix };
  });
  return { layout, axes };
}

function base() {
  return { gridcolor: css("--grid"), linecolor: css("--line"), tickcolor: css("--line"), zerolinecolor: css("--line"), color: css("--muted"), automargin: true, tickfont: { size: 11.5 } };
}

function framed(layout) {
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--muted") };
  const hoverlabel = { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 } };
  return { margin: { l: 56, r: 12, t: 26, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font, hoverlabel, showlegend: false, hovermode: "closest", ...layout };
}

function addPanel(id, draw, state = {}) {
  const node = document.querySelector(`[data-panel="${id}"]`);
  panels.set(id, { node, draw, dirty: true, visible: false, state });
}

function paint(panel) {
  const plot = panel.node.querySelector(".plot");
  const drawn = panel.draw(panel.state, Math.max(280, plot.clientWidth));
  panel.dirty = false;
  panel.rows = drawn.rows;
  panel.node.querySelector("figcaption").textContent = drawn.note || "";
  legend(panel.node.querySelector(".legend"), drawn.legend || []);
  plot.style.minHeight = `${drawn.layout.height}px`;
  Plotly.react(plot, drawn.traces, framed(drawn.layout), CONFIG);
}

function refresh(ids = [...panels.keys()]) {
  for (const id of ids) {
    const panel = panels.get(id);
    if (!panel) continue;
    panel.dirty = true;
    if (panel.visible) paint(panel);
  }
}

function legend(node, items) {
  node.replaceChildren();
  for (const item of items) {
    const entry = element("span");
    entry.append(swatch(item), document.createTextNode(item.text));
    node.append(entry);
  }
}

// plotly's symbols, as small as a legend's.
const SHAPES = {
  circle: "M13 1.6 a3.4 3.4 0 1 0 0.01 0 Z", square: "M9.8 1.8 h6.4 v6.4 h-6.4 Z", diamond: "M13 0.6 l4.4 4.4 l-4.4 4.4 l-4.4 -4.4 Z",
  "triangle-up": "M13 1 l4 7.4 h-8 Z", "triangle-down": "M13 9 l4 -7.4 h-8 Z", "triangle-left": "M9 5 l7.4 -4 v8 Z", "triangle-right": "M17 5 l-7.4 -4 v8 Z",
  cross: "M11.8 1 h2.4 v2.8 h2.8 v2.4 h-2.8 v2.8 h-2.4 v-2.8 h-2.8 v-2.4 h2.8 Z",
};

function swatch({ colour, dash = "solid", symbol, width = 2.2 }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ width: 26, height: 10, "aria-hidden": "true" })) svg.setAttribute(key, value);
  const dashes = { dot: "2 3", dash: "6 3", solid: "" }[dash] ?? dash.replace(/px/g, "").replace(/,/g, " ");
  const shapes = symbol === "x" ? [["path", { d: "M9 1 L17 9 M17 1 L9 9", stroke: colour, "stroke-width": 2 }]] : [["line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: colour, "stroke-width": width, "stroke-dasharray": dashes }]];
  if (SHAPES[symbol]) shapes.push(["path", { d: SHAPES[symbol], fill: colour }]);
  for (const [name, attributes] of shapes) {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
    svg.append(shape);
  }
  return svg;
}
