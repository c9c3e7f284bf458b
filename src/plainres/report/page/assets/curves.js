// Training curves: an error or a loss against updates, epochs or compute; panels by connection or by depth.
const isLoss = (metric) => metric.includes("loss");

// Training compute of `step` updates: the backward pass costs two forward passes.
function flopsOf(curve, step) {
  const source = DATA.sources[curve.source];
  const forward = source.forward_flops[`${curve.connection}|${curve.depth}`];
  return forward === undefined ? null : 3 * forward * source.batch * step;
}

const X_KINDS = {
  steps: { words: "updates", at: (curve, step) => logStep(step) },
  epochs: { words: "epochs (passes over the training set)", at: (curve, step) => (step * DATA.sources[curve.source].batch) / DATA.sources[curve.source].num_train },
  flops: { words: "training compute (FLOPs)", at: (curve, step) => (step === 0 ? null : Math.log10(flopsOf(curve, step))) },
};

function curveXAxis(kind, curves) {
  const steps = curves.flatMap((curve) => Object.values(curve.metrics).map(([at]) => at[at.length - 1]));
  if (kind === "steps") return stepAxis(Math.max(1, ...steps));
  if (kind === "epochs") return { title: { text: X_KINDS.epochs.words }, zeroline: false, rangemode: "tozero" };
  const all = curves.flatMap((curve) => Object.values(curve.metrics).flatMap(([at]) => at.filter((s) => s > 0).map((s) => Math.log10(flopsOf(curve, s)))));
  return decadeAxis(X_KINDS.flops.words, Math.min(...all), Math.max(...all));
}

// Losses have a logarithmic axis; a loss of exactly 0 is drawn at the floor of the others, and counted in the note.
function curveYAxis(metric, scale, curves) {
  const title = DATA.curve_labels[metric];
  if (!isLoss(metric)) {
    if (scale === "root") return { axis: rootAxis(`${title} (%)`), value: (v) => root(percent(v)) };
    return { axis: { title: { text: `${title} (%)` }, range: [-2, 103], zeroline: false }, value: percent };
  }
  const known = curves.flatMap((curve) => (curve.metrics[metric] ? curve.metrics[metric][1] : [])).filter((v) => v > 0);
  const [low, high] = [Math.log10(Math.min(...known)), Math.log10(Math.max(...known))];
  return { axis: decadeAxis(`${title} (nats)`, low, high), value: (v) => (v === null ? null : v > 0 ? Math.log10(v) : low) };
}

function drawCurves(state, width) {
  const metric = state.metric;
  const all = DATA.curves.filter((curve) => isShown(curve) && curve.metrics[metric] && !(state.x === "flops" && flopsOf(curve, 1) === null));
  const keyOf = { connection: (c) => groupWords(c, ARMS.get(c.connection).words), depth: (c) => groupWords(c, `depth ${c.depth}`), none: (c) => groupWords(c, "") }[state.by];
  const keys = unique(all.map(keyOf));
  if (keys.length === 0) return nothing(`No run that is shown has ${DATA.curve_labels[metric]}.`);
  const { axis, value } = curveYAxis(metric, state.scale, all);
  const { layout, axes } = facets(keys, width, keys.length > 3 ? 230 : 320, curveXAxis(state.x, all), axis);
  const traces = [];
  const rows = [];
  for (const curve of all) {
    const mean = curve.seed === null;
    if (!seedShown(curve, metric, state.seeds)) continue;
    traces.push(...curveTraces(curve, metric, state, value, axes[keys.indexOf(keyOf(curve))]));
    curve.metrics[metric][0].forEach((step, i) => rows.push([DATA.sources[curve.source].label, curve.connection, curve.depth, mean ? "mean" : curve.seed, step, curve.metrics[metric][1][i]]));
  }
  const lossFloor = isLoss(metric) && all.some((curve) => curve.metrics[metric][1].some((v) => v === 0)) ? " A loss of exactly 0 stands at the lowest other one." : "";
  const compute = state.x === "flops" ? " Compute: matrix products and convolutions of three forward passes per update." : "";
  const note = `${isLoss(metric) || state.scale === "linear" ? "" : "The error axis is a square root. "}${lossFloor}${compute}`;
  return { traces, layout, legend: cellLegend(all, state.by), rows: { columns: ["setting", "connection", "depth", "seed", "step", metric], rows }, note };
}

// "all": each seed and the mean; "mean": the mean alone, or what there is; else one seed.
function seedShown(curve, metric, seeds) {
  if (seeds === "all") return true;
  if (seeds === "mean") return curve.seed === null || !hasMean(curve, metric);
  return String(curve.seed) === seeds;
}

function seedControl() {
  const seeds = unique(DATA.curves.map((curve) => curve.seed)).filter((seed) => seed !== null).sort((a, b) => a - b);
  return { type: "select", key: "seeds", label: "seeds", options: [["all", "each, and their mean"], ["mean", "mean only"], ...seeds.map((seed) => [String(seed), `seed ${seed}`])] };
}

const groupWords = (row, words) => (DATA.sources.length > 1 ? `${DATA.sources[row.source].label}${words ? ": " + words : ""}` : words);
const hasMean = (curve, metric) => DATA.curves.some((c) => c.seed === null && c.source === curve.source && c.connection === curve.connection && c.depth === curve.depth && c.metrics[metric]);

function curveTraces(curve, metric, state, value, axes) {
  const [steps, values, counts] = curve.metrics[metric];
  const mean = curve.seed === null;
  const look = mean || !hasMean(curve, metric) ? { width: 2.2, dash: state.by === "none" ? ARMS.get(curve.connection).dash : "solid" } : { width: 0.8, dash: "solid" };
  const shownValue = (v) => (isLoss(metric) ? `${v}` : `${(100 * v).toFixed(2)} %`);
  const text = steps.map((step, i) => `${safe(ARMS.get(curve.connection).words)}, depth ${curve.depth}, ${mean ? `mean of ${counts[i]}` : `seed ${curve.seed}`}<br>step ${step}: ${values[i] === null ? "no value" : shownValue(values[i])}`);
  const x = steps.map((step) => X_KINDS[state.x].at(curve, step));
  const line = { ...axes, x, y: values.map(value), mode: mean && steps.length < 40 ? "lines+markers" : "lines", marker: { size: 4, color: shade(curve.connection, curve.depth) }, line: { color: shade(curve.connection, curve.depth), ...look }, opacity: mean || look.width > 1 ? 1 : 0.55, text, hoverinfo: "text" };
  if (mean || !curve.stopped) return [line];
  const last = values.length - 1;
  const cross = { ...axes, x: [x[last]], y: [value(values[last])], mode: "markers", marker: { symbol: "x", size: 8, color: shade(curve.connection, curve.depth) }, text: [`${text[last]}<br>${curve.stopped}`], hoverinfo: "text" };
  return [line, cross];
}

// One entry for each line that can be told apart.
function cellLegend(cells, by) {
  const seen = new Map();
  for (const cell of cells) {
    const dash = by === "none" || by === "depth" ? ARMS.get(cell.connection).dash : "solid";
    seen.set(`${ARMS.get(cell.connection).words}, ${cell.depth}`, { text: `${ARMS.get(cell.connection).words}, depth ${cell.depth}`, colour: shade(cell.connection, cell.depth), dash });
  }
  return [...seen.values()];
}

function nothing(note) {
  return { traces: [], layout: { height: 120, xaxis: { visible: false }, yaxis: { visible: false } }, legend: [], rows: { columns: [], rows: [] }, note };
}

function curveControls() {
  const metrics = unique(DATA.curves.flatMap((curve) => Object.keys(curve.metrics))).sort((a, b) => Object.keys(DATA.curve_labels).indexOf(a) - Object.keys(DATA.curve_labels).indexOf(b));
  const counted = DATA.curves.some((curve) => flopsOf(curve, 1) !== null);
  panelControls("curves", [
    { type: "select", key: "metric", label: "show", options: metrics.map((m) => [m, DATA.curve_labels[m]]) },
    { type: "select", key: "x", label: "against", options: [["steps", "updates"], ["epochs", "epochs"], ["flops", counted ? "training compute" : "compute (not recorded)", !counted]] },
    { type: "select", key: "by", label: "panels", options: [["connection", "by connection"], ["depth", "by depth"], ["none", "all in one"]] },
    { type: "select", key: "scale", label: "error axis", options: [["root", "square root"], ["linear", "linear"]] },
    seedControl(),
  ]);
}
