// Profiles over layers at one step, heat maps over layers and steps, and the gain chain.
const metricOptions = () => Object.entries(DATA.layers).map(([name, metric]) => [name, metric.label]);
const axisName = (metric) => (DATA.layers[metric].scope === "block" ? "block (0 = first)" : "layer (0 = stem)");
const allSteps = (metric) => unique(DATA.layers[metric].cells.flatMap((cell) => cell.steps)).sort((a, b) => a - b);

// The values of a cell at a step, or at the last one before it: runs that diverged end early.
function atStep(cell, step) {
  const before = cell.steps.filter((s) => s <= step);
  if (before.length === 0) return null;
  const i = before.length - 1;
  return { step: cell.steps[i], n: cell.n[i], values: cell.values[i] };
}

function scaled(metric, values) {
  return DATA.layers[metric].log ? values.map((v) => (v === null ? null : Math.log10(v))) : values;
}

function valueRange(metric, cells) {
  let [low, high] = [Infinity, -Infinity];
  for (const cell of cells) for (const row of cell.values) for (const v of row) if (v !== null) [low, high] = [Math.min(low, v), Math.max(high, v)];
  return DATA.layers[metric].log ? [Math.log10(low), Math.log10(high)] : [low, high];
}

function valueAxis(metric, [low, high]) {
  const { label, log } = DATA.layers[metric];
  return log ? decadeAxis(label, Math.max(low, high - 16), high) : { title: { text: label }, range: [low - 0.05 * (high - low) - 0.01, high + 0.05 * (high - low) + 0.01], zeroline: true };
}

function drawLayers(state, width) {
  const metric = state.metric;
  const cells = DATA.layers[metric].cells.filter(isShown);
  if (cells.length === 0) return nothing("No run that is shown has this quantity.");
  const step = allSteps(metric)[state.step];
  const keyOf = { connection: (c) => groupWords(c, ARMS.get(c.connection).words), depth: (c) => groupWords(c, `depth ${c.depth}`), none: (c) => groupWords(c, "") }[state.by];
  const keys = unique(cells.map(keyOf));
  const longest = Math.max(...cells.map((cell) => cell.layers[cell.layers.length - 1]));
  const xAxis = state.relative ? { title: { text: "share of the way from input to output" }, range: [-0.02, 1.02], zeroline: false } : { title: { text: axisName(metric) }, range: [-0.02 * longest - 0.5, 1.02 * longest + 0.5], zeroline: false };
  // The axis spans all steps, so that lines move and not the scale; or this step alone.
  const there = cells.map((cell) => atStep(cell, step)).filter((found) => found !== null && found.values.some((v) => v !== null));
  const spanned = state.fit && there.length ? there.map((found) => ({ values: [found.values] })) : cells;
  const { layout, axes } = facets(keys, width, keys.length > 3 ? 230 : 320, xAxis, valueAxis(metric, valueRange(metric, spanned)));
  const traces = [];
  const rows = [];
  const early = [];
  for (const cell of cells) {
    const found = atStep(cell, step);
    if (!found) continue;
    if (found.step < step) early.push(`${ARMS.get(cell.connection).words} depth ${cell.depth} (step ${found.step})`);
    const last = cell.layers[cell.layers.length - 1] || 1;
    const x = cell.layers.map((l) => (state.relative ? l / last : l));
    const dash = state.by === "connection" ? "solid" : ARMS.get(cell.connection).dash;
    const text = cell.names.map((name, i) => `${safe(ARMS.get(cell.connection).words)}, depth ${cell.depth}<br>${cell.layers[i]}: ${safe(name)}<br>${found.values[i] === null ? "no value, or exactly 0" : found.values[i]}<br>step ${found.step}, mean of ${found.n}`);
    traces.push({ ...axes[keys.indexOf(keyOf(cell))], x, y: scaled(metric, found.values), mode: x.length < 8 ? "lines+markers" : "lines", line: { color: shade(cell.connection, cell.depth), width: 1.8, dash }, text, hoverinfo: "text", connectgaps: false });
    cell.layers.forEach((l, i) => rows.push([DATA.sources[cell.source].label, cell.connection, cell.depth, found.step, l, cell.names[i], found.values[i]]));
  }
  if (state.marked && state.marked.metric === metric && !state.relative) layout.shapes = markedLayers(state.marked, cells, keys, keyOf, axes);
  const gaps = cells.some((cell) => cell.zeros > 0) && DATA.layers[metric].log ? " Gaps are values of exactly 0." : "";
  const ended = early.length ? ` Shown at their last probed step before it: ${early.slice(0, 4).join(", ")}${early.length > 4 ? ` and ${early.length - 4} more` : ""}.` : "";
  return { traces, layout, legend: cellLegend(cells, state.by), rows: { columns: ["setting", "connection", "depth", "step", "index", "name", metric], rows }, note: `${state.marked && state.marked.metric === metric ? `Marked: what the finding on ${state.marked.connection}, depth ${state.marked.depth}, speaks of. ` : ""}${gaps}${ended}`.trim() };
}

function markedLayers(marked, cells, keys, keyOf, axes) {
  const cell = cells.find((c) => c.connection === marked.connection && c.depth === marked.depth && c.source === marked.source);
  if (!cell) return [];
  const { xaxis, yaxis } = axes[keys.indexOf(keyOf(cell))];
  return marked.layers.map((l) => ({ type: "rect", xref: xaxis, yref: `${yaxis} domain`, x0: l - 0.5, x1: l + 0.5, y0: 0, y1: 1, fillcolor: css("--focus"), opacity: 0.16, line: { width: 0 } }));
}

// At first the last step with a tenth of the peak learning rate: later, updates are small for the schedule's sake.
function firstStep(steps) {
  const moving = Math.max(...DATA.sources.map((source) => source.last_moving ?? -1));
  const at = steps.filter((step) => step <= moving).length - 1;
  return at < 0 ? steps.length - 1 : at;
}

function layerControls(id = "layers") {
  const panel = panels.get(id);
  const steps = allSteps(panel.state.metric);
  panel.state.step = Math.min(panel.state.step ?? firstStep(steps), steps.length - 1);
  const keepStep = () => {
    const now = allSteps(panel.state.metric);
    panel.state.step = Math.min(panel.state.step, now.length - 1);
    layerControls();
  };
  panelControls(id, [
    { type: "select", key: "metric", label: "show", options: metricOptions(), then: keepStep },
    { type: "select", key: "by", label: "panels", options: [["connection", "by connection"], ["depth", "by depth"], ["none", "all in one"]] },
    { type: "check", key: "relative", label: "relative depth" },
    { type: "check", key: "fit", label: "axis of this step" },
    { type: "slider", key: "step", label: "step", values: steps, words: (step) => `step ${step.toLocaleString("en")}` },
  ]);
}

function drawHeatmaps(state, width) {
  const metric = state.metric;
  const depth = Number(state.depth);
  const { log, label } = DATA.layers[metric];
  const cells = DATA.layers[metric].cells.filter((cell) => cell.depth === depth && shown.sources.has(cell.source) && shown.connections.has(cell.connection));
  if (cells.length === 0) return nothing("No run that is shown has this quantity at this depth.");
  const values = cells.flatMap((cell) => cell.values.flat()).filter((v) => v !== null).map((v) => (log ? Math.log10(v) : v)).sort((a, b) => a - b);
  const [low, high] = [values[Math.floor(0.001 * values.length)], values[Math.ceil(0.999 * values.length) - 1]];
  const last = Math.max(...cells.flatMap((cell) => cell.steps));
  const top = Math.max(...cells.map((cell) => cell.layers[cell.layers.length - 1]));
  const words = (cell) => groupWords(cell, ARMS.get(cell.connection).words);
  const { layout, axes } = facets(cells.map(words), width, 300, stepAxis(last), { title: { text: axisName(metric) }, range: [-0.5, top + 0.5], zeroline: false });
  const traces = [];
  const rows = [];
  cells.forEach((cell, i) => {
    const z = cell.layers.map((_, l) => cell.values.map((row) => (row[l] === null ? null : log ? Math.log10(row[l]) : row[l])));
    const text = cell.layers.map((layer, l) => cell.steps.map((step, s) => `${layer}: ${safe(cell.names[l])}<br>step ${step}: ${cell.values[s][l] === null ? "no value" : cell.values[s][l]}`));
    traces.push({ ...axes[i], type: "heatmap", x: cell.steps.map(logStep), y: cell.layers, z, text, hoverinfo: "text", coloraxis: "coloraxis", hoverongaps: false });
    cell.steps.forEach((step, s) => cell.layers.forEach((l, k) => rows.push([DATA.sources[cell.source].label, cell.connection, depth, step, l, cell.names[k], cell.values[s][k]])));
  });
  const bar = log ? decadeAxis("", low, high) : {};
  layout.coloraxis = { colorscale: "Viridis", cmin: low, cmax: high, colorbar: { thickness: 12, len: Math.min(1, 300 / layout.height + 0.2), outlinewidth: 0, tickvals: bar.tickvals, ticktext: bar.ticktext, tickangle: 0, tickfont: { size: 11 } } };
  if (width < NARROW) {
    Object.assign(layout, { height: layout.height + 70, margin: { l: 56, r: 12, t: 26, b: 120 } });
    Object.assign(layout.coloraxis.colorbar, { orientation: "h", len: 0.95, x: 0.5, yref: "container", y: 0.01, yanchor: "bottom" });
  }
  for (const key of Object.keys(layout)) if (/^[xy]axis/.test(key)) layout[key].showgrid = false;
  const rowsOut = { columns: ["setting", "connection", "depth", "step", "index", "name", metric], rows };
  return { traces, layout, rows: rowsOut, note: `${label}, depth ${depth}. Colours span all but the least and the greatest thousandth of the values; empty is no value, exactly 0, or a run that has stopped.` };
}

function heatmapControls() {
  const panel = panels.get("heatmaps");
  const depths = () => unique(DATA.layers[panel.state.metric].cells.map((cell) => cell.depth)).sort((a, b) => a - b);
  if (!depths().includes(Number(panel.state.depth))) panel.state.depth = String(depths()[depths().length - 1]);
  panelControls("heatmaps", [
    { type: "select", key: "metric", label: "show", options: metricOptions(), then: heatmapControls },
    { type: "select", key: "depth", label: "depth", options: depths().map((d) => [String(d), String(d)]) },
  ]);
}

const SCALAR = [0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2];
const MOST_DECADES = 12;

function drawChain(state, width) {
  const chains = DATA.chains.filter((chain) => chain.moment === state.moment && isShown(chain));
  if (chains.length === 0) return nothing("No run that is shown has backward gains.");
  const keyOf = (chain) => groupWords(chain, state.by === "connection" ? ARMS.get(chain.connection).words : "");
  const keys = unique(chains.map(keyOf));
  const values = chains.flatMap((chain) => chain.value).filter((v) => v !== null && v > 0).map(Math.log10);
  const [low, high] = [Math.max(-MOST_DECADES, Math.min(-1, ...values)), Math.min(MOST_DECADES, Math.max(1, ...values))];
  const longest = Math.max(...chains.map((chain) => chain.num_blocks[chain.num_blocks.length - 1]));
  const { layout, axes } = facets(keys, width, 340, { title: { text: "blocks passed, from the end of the trunk" }, range: [0, 1.06 * longest], zeroline: false }, decadeAxis("product of backward gains", low, high));
  const traces = [];
  keys.forEach((_, i) => {
    for (const d of SCALAR) {
      const end = [longest, longest * Math.log10(d)];
      if (end[1] < low || end[1] > high) [end[0], end[1]] = [(end[1] < low ? low : high) / Math.log10(d), end[1] < low ? low : high];
      traces.push({ ...axes[i], x: [0, end[0]], y: [0, end[1]], mode: "lines+text", text: ["", `${d}ⁿ`], textposition: "middle right", cliponaxis: false, textfont: { size: 10, color: css("--muted") }, line: { color: css("--line"), width: 1 }, hoverinfo: "skip" });
    }
  });
  const rows = [];
  for (const chain of chains) {
    const text = chain.num_blocks.map((n, i) => `${safe(ARMS.get(chain.connection).words)}, depth ${chain.depth}<br>${n} blocks: ${chain.value[i]}<br>step ${chain.step}, mean of ${chain.n}`);
    const dash = state.by === "connection" ? "solid" : ARMS.get(chain.connection).dash;
    traces.push({ ...axes[keys.indexOf(keyOf(chain))], x: chain.num_blocks, y: chain.value.map((v) => (v === null || v <= 0 ? null : Math.log10(v))), mode: "lines", line: { color: shade(chain.connection, chain.depth), width: 2, dash }, text, hoverinfo: "text" });
    chain.num_blocks.forEach((n, i) => rows.push([DATA.sources[chain.source].label, chain.moment, chain.connection, chain.depth, n, chain.value[i], chain.low[i], chain.high[i]]));
  }
  return { traces, layout, legend: cellLegend(chains, state.by), rows: { columns: ["setting", "moment", "connection", "depth", "num_blocks", "value", "low", "high"], rows }, note: "Geometric means over seeds; n counts blocks, not layers." };
}

function chainControls() {
  panelControls("chain", [
    { type: "select", key: "moment", label: "at", options: [["start", "start of training"], ["end", "end (last step with a tenth of the peak learning rate)"]] },
    { type: "select", key: "by", label: "panels", options: [["connection", "by connection"], ["none", "all in one"]] },
  ]);
}
