// Final training error against depth: every seed, mean and 95 % interval; a panel for each setting.
const position = (depth) => Math.log2(depth);
const depthAxis = () => ({ title: { text: "depth (weighted layers)" }, tickvals: DEPTHS.map(position), ticktext: DEPTHS.map(String), zeroline: false, range: [position(DEPTHS[0]) - 0.25, position(DEPTHS[DEPTHS.length - 1]) + 0.25] });

function drawDegradation(state, width) {
  if (DEPTHS.length === 1) return drawRanked(state, width);
  const sources = DATA.sources.map((_, i) => i).filter((i) => shown.sources.has(i));
  const several = DATA.sources.length > 1;
  const height = several ? 240 : 330;
  const y = state.scale === "root" ? rootAxis("final training error (%)") : { title: { text: "final training error (%)" }, range: [-2, 103], zeroline: false };
  const value = state.scale === "root" ? root : (v) => v;
  const { layout, axes } = facets(sources.map((i) => (several ? DATA.sources[i].label : "")), width, height, depthAxis(), y);
  const names = DATA.arms.map((arm) => arm.name).filter((name) => shown.connections.has(name));
  const traces = [];
  const rows = [];
  sources.forEach((source, panel) => {
    names.forEach((name, i) => {
      const shift = (i - (names.length - 1) / 2) * 0.035;
      const arm = DATA.degradation.filter((row) => row.source === source && row.connection === name && row.n > 0 && shown.depths.has(row.depth));
      if (arm.length === 0) return;
      traces.push(...degradationArm(arm, name, shift, value, axes[panel]), degradationSeeds(source, name, shift, value, axes[panel]));
      for (const row of arm) rows.push([DATA.sources[source].label, name, row.depth, row.n, row.n_diverged, row.train_error_mean, row.train_error_low, row.train_error_high]);
    });
    const chance = value(100 * DATA.sources[source].chance);
    const ends = [position(DEPTHS[0]) - 0.25, position(DEPTHS[DEPTHS.length - 1]) + 0.25];
    traces.push({ ...axes[panel], x: ends, y: [chance, chance], mode: "lines", line: { color: css("--muted"), dash: "dot", width: 1 }, hoverinfo: "skip" });
  });
  const items = names.map((name) => ({ text: ARMS.get(name).words, colour: shade(name), dash: ARMS.get(name).dash, symbol: ARMS.get(name).symbol }));
  items.push({ text: "chance level", colour: css("--muted"), dash: "dot", width: 1.2 });
  const columns = ["setting", "connection", "depth", "n", "n_diverged", "train_error_mean", "train_error_low", "train_error_high"];
  const stopped = DATA.degradation.some((row) => row.n_diverged > 0) ? " Runs that diverged count at chance level (crosses)." : "";
  return { traces, layout, legend: items, rows: { columns, rows }, note: `Mean and 95 % t interval over seeds; rings are single seeds.${stopped}${state.scale === "root" ? " The axis is a square root, so that small errors have room." : ""}` };
}

function degradationArm(arm, name, shift, value, axes) {
  const [mean, low, high] = ["mean", "low", "high"].map((part) => arm.map((row) => (row[`train_error_${part}`] === null ? null : 100 * row[`train_error_${part}`])));
  const clipped = (v) => Math.min(100, Math.max(0, v));
  const bars = { type: "data", symmetric: false, thickness: 1.6, width: 4, array: mean.map((m, i) => (high[i] === null ? 0 : value(clipped(high[i])) - value(m))), arrayminus: mean.map((m, i) => (low[i] === null ? 0 : value(m) - value(clipped(low[i])))) };
  const words = arm.map((row, i) => `${safe(ARMS.get(name).words)}, depth ${row.depth}<br>${mean[i].toFixed(2)} %${low[i] === null ? "" : ` [${clipped(low[i]).toFixed(2)}, ${clipped(high[i]).toFixed(2)}]`}<br>n = ${row.n}${row.n_diverged ? `, ${row.n_diverged} diverged` : ""}`);
  return [{ ...axes, x: arm.map((row) => position(row.depth) + shift), y: mean.map(value), error_y: { ...bars, color: shade(name) }, mode: "lines+markers", line: lineOf(name), marker: { symbol: ARMS.get(name).symbol, size: 8, color: shade(name), line: { color: css("--paper"), width: 1 } }, text: words, hoverinfo: "text", name: safe(name) }];
}

function degradationSeeds(source, name, shift, value, axes) {
  const all = DATA.finals[source];
  const mine = all.depth.map((_, i) => i).filter((i) => all.connection[i] === name && shown.depths.has(all.depth[i]));
  const look = (i) => (all.diverged[i] ? "x-thin-open" : "circle-open");
  return { ...axes, x: mine.map((i) => position(all.depth[i]) + shift + 0.07), y: mine.map((i) => value(100 * all.train_error[i])), mode: "markers", marker: { symbol: mine.map(look), size: 5, color: shade(name), line: { width: 1, color: shade(name) } }, text: mine.map((i) => `seed ${all.seed[i]}: ${(100 * all.train_error[i]).toFixed(2)} %${all.diverged[i] ? " (diverged)" : ""}`), hoverinfo: "text" };
}

// One depth: a row for each connection, all of them whatever is filtered, the best at the bottom.
function drawRanked(state, width) {
  const sources = DATA.sources.map((_, i) => i).filter((i) => shown.sources.has(i));
  const means = (name) => DATA.degradation.filter((row) => row.connection === name && row.n > 0).map((row) => row.train_error_mean);
  const names = DATA.arms.map((arm) => arm.name).filter((name) => means(name).length > 0).sort((a, b) => Math.max(...means(b)) - Math.max(...means(a)));
  const value = state.scale === "root" ? root : (v) => v;
  const title = `final training error (%), depth ${DEPTHS[0]}`;
  const x = state.scale === "root" ? rootAxis(title) : { title: { text: title }, range: [-2, 103], zeroline: false };
  const y = { title: { text: "" }, tickvals: names.map((_, i) => i), ticktext: names.map((name) => safe(ARMS.get(name).words)), range: [-0.7, names.length - 0.3], zeroline: false };
  const { layout, axes } = facets(sources.map((i) => DATA.sources[i].label), width, 24 * names.length + 60, x, y);
  const traces = [];
  const rows = [];
  sources.forEach((source, panel) => {
    names.forEach((name, at) => {
      const arm = DATA.degradation.filter((row) => row.source === source && row.connection === name && row.n > 0);
      if (arm.length === 0) return;
      const [line] = degradationArm(arm, name, 0, value, axes[panel]);
      const seeds = degradationSeeds(source, name, 0, value, axes[panel]);
      traces.push({ ...seeds, x: seeds.y, y: seeds.y.map(() => at) }, { ...line, x: line.y, y: [at], error_x: line.error_y, error_y: undefined });
      rows.push([DATA.sources[source].label, name, DEPTHS[0], arm[0].n, arm[0].n_diverged, arm[0].train_error_mean, arm[0].train_error_low, arm[0].train_error_high]);
    });
    const chance = value(100 * DATA.sources[source].chance);
    traces.push({ ...axes[panel], x: [chance, chance], y: [-0.7, names.length - 0.3], mode: "lines", line: { color: css("--muted"), dash: "dot", width: 1 }, hoverinfo: "skip" });
  });
  const columns = ["setting", "connection", "depth", "n", "n_diverged", "train_error_mean", "train_error_low", "train_error_high"];
  return { traces, layout, legend: [{ text: "chance level", colour: css("--muted"), dash: "dot", width: 1.2 }], rows: { columns, rows }, note: "Mean and 95 % t interval over seeds; rings are single seeds, crosses runs that diverged (counted at chance level)." };
}
