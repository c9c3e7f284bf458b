// Construction, and charts over several settings: learning rates, budgets, initial scales.
function constructionCurves() {
  const built = new Set(DATA.arms.filter((arm) => arm.of !== null).map((arm) => arm.name));
  const beside = new Set();
  for (const curve of DATA.curves) if (built.has(curve.connection)) beside.add(`${curve.source}|${curve.depth}|${ARMS.get(curve.connection).of}`);
  return DATA.curves.filter((c) => c.metrics.train_error && (built.has(c.connection) || beside.has(`${c.source}|${c.depth}|${c.connection}`)));
}

function drawConstruction(state, width) {
  const all = constructionCurves().filter((curve) => shown.sources.has(curve.source) && shown.depths.has(curve.depth) && seedShown(curve, "train_error", state.seeds));
  if (all.length === 0) return nothing("No run that is shown was built from a trained one.");
  const keyOf = (curve) => groupWords(curve, `depth ${curve.depth}`);
  const keys = unique(all.map(keyOf));
  const { axis, value } = curveYAxis("train_error", "linear", all);
  const { layout, axes } = facets(keys, width, 260, curveXAxis("steps", all), axis);
  const traces = all.flatMap((curve) => curveTraces(curve, "train_error", { x: "steps", by: "none" }, value, axes[keys.indexOf(keyOf(curve))]).map((t) => ({ ...t, marker: { ...t.marker, color: shade(curve.connection) }, line: t.line && { ...t.line, color: shade(curve.connection) } })));
  const rows = all.flatMap((curve) => curve.metrics.train_error[0].map((step, i) => [DATA.sources[curve.source].label, curve.connection, curve.depth, curve.seed ?? "mean", step, curve.metrics.train_error[1][i]]));
  const items = unique(all.map((curve) => curve.connection)).map((name) => ({ text: ARMS.get(name).words, colour: shade(name), dash: ARMS.get(name).dash }));
  return { traces, layout, legend: items, rows: { columns: ["setting", "connection", "depth", "seed", "step", "train_error"], rows }, note: "The step axis is log(1 + step): a solution that is lost is lost early." };
}

const ACROSS_WORDS = { "learning rate": "error against learning rate", steps: "error against budget", start: "initial scales" };
const acrossWords = (chart) => [ACROSS_WORDS[chart.kind], ...(new Set(DATA.across.map((c) => c.study)).size > 1 ? [chart.study] : []), ...(DATA.across.filter((c) => c.kind === chart.kind && c.study === chart.study).length > 1 ? [chart.setting] : [])].join(", ");

function drawAcross(state, width) {
  const chart = DATA.across[Number(state.chart)];
  return chart.kind === "start" ? drawStart(chart, width) : drawAgainst(chart, width);
}

function indices(chart, keep) {
  return chart.depth.map((_, i) => i).filter(keep);
}

// Studies read beside this one may have connections that it has not: a chart brings the looks of its own.
const looksOf = (chart) => new Map(chart.looks.map((look) => [look.name, { ...look, colour: shadeOf(look.colour) }]));

function drawAgainst(chart, width) {
  const depths = unique(chart.depth).sort((a, b) => a - b);
  const values = unique(chart.x).sort((a, b) => a - b);
  const x = { title: { text: chart.kind }, tickvals: values.map(Math.log10), ticktext: values.map(String), zeroline: false, range: [Math.log10(values[0]) - 0.15, Math.log10(values[values.length - 1]) + 0.15] };
  const { layout, axes } = facets(depths.map((d) => `depth ${d}`), width, 280, x, rootAxis("final training error (%)"), 4);
  const traces = [];
  const looks = looksOf(chart);
  const names = [...looks.keys()];
  depths.forEach((depth, panel) => {
    for (const name of names) {
      const mine = indices(chart, (i) => chart.depth[i] === depth && chart.connection[i] === name);
      const at = values.filter((v) => mine.some((i) => chart.x[i] === v));
      const mean = at.map((v) => average(mine.filter((i) => chart.x[i] === v).map((i) => 100 * chart.train_error[i])));
      const chosen = at.filter((v) => mine.some((i) => chart.x[i] === v && chart.chosen[i]));
      traces.push({ ...axes[panel], x: at.map(Math.log10), y: mean.map(root), mode: "lines+markers", line: { color: looks.get(name).colour, dash: looks.get(name).dash, width: 2 }, marker: { symbol: looks.get(name).symbol, size: 7, color: looks.get(name).colour }, text: at.map((v, k) => `${safe(name)}, ${chart.kind} ${v}<br>mean ${mean[k].toFixed(2)} %`), hoverinfo: "text" });
      traces.push({ ...axes[panel], x: mine.map((i) => Math.log10(chart.x[i])), y: mine.map((i) => root(100 * chart.train_error[i])), mode: "markers", marker: { symbol: mine.map((i) => (chart.diverged[i] ? "x-thin-open" : "circle-open")), size: 5, color: looks.get(name).colour, line: { width: 1, color: looks.get(name).colour } }, text: mine.map((i) => `${safe(name)}, seed ${chart.seed[i]}: ${(100 * chart.train_error[i]).toFixed(2)} %`), hoverinfo: "text" });
      traces.push({ ...axes[panel], x: chosen.map(Math.log10), y: chosen.map((v) => root(mean[at.indexOf(v)])), mode: "markers", marker: { symbol: "circle-open", size: 15, color: looks.get(name).colour, line: { width: 1.5 } }, hoverinfo: "skip" });
    }
    traces.push({ ...axes[panel], x: [x.range[0], x.range[1]], y: [root(100 * chart.chance), root(100 * chart.chance)], mode: "lines", line: { color: css("--muted"), dash: "dot", width: 1 }, hoverinfo: "skip" });
  });
  const rows = chart.depth.map((d, i) => [chart.connection[i], d, chart.seed[i], chart.x[i], chart.train_error[i], chart.diverged[i], chart.chosen[i]]);
  const note = `Rings are single seeds, crosses runs that diverged (counted at chance level).${chart.chosen.some(Boolean) ? " A large ring marks the rate that seeds from 100 on chose by training loss." : ""} The error axis is a square root.`;
  return { traces, layout, legend: [...armLegend(looks), { text: "chance level", colour: css("--muted"), dash: "dot", width: 1.2 }], rows: { columns: ["connection", "depth", "seed", chart.kind, "train_error", "diverged", "chosen"], rows }, note };
}

const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const armLegend = (looks) => [...looks.values()].map((look) => ({ text: look.words, colour: look.colour, dash: look.dash, symbol: look.symbol }));

function drawStart(chart, width) {
  const known = indices(chart, (i) => chart.early[i] !== null && chart.end[i] !== null);
  const range = (key) => [Math.min(...known.map((i) => chart[key][i]), Math.log10(chart.chance)), Math.max(...known.map((i) => chart[key][i]), Math.log10(chart.chance))];
  const { layout, axes } = facets([`depth ${Math.max(...chart.depth)}, learning rate ${unique(chart.lr).join(", ")}`], width, 380, decadeAxis("mean training loss over the first quarter of the steps", ...range("early")), decadeAxis("final training loss", ...range("end")));
  const looks = looksOf(chart);
  const names = [...looks.keys()];
  const traces = names.flatMap((name) => {
    const mine = known.filter((i) => chart.connection[i] === name);
    const point = { ...axes[0], mode: "markers", hoverinfo: "text" };
    const words = (i) => `${safe(name)}, seed ${chart.seed[i]}<br>early ${(10 ** chart.early[i]).toPrecision(3)}, end ${(10 ** chart.end[i]).toPrecision(3)}`;
    return [
      { ...point, x: mine.map((i) => chart.early[i]), y: mine.map((i) => chart.end[i]), marker: { symbol: mine.map((i) => (chart.diverged[i] ? "x-thin-open" : "circle-open")), size: 7, line: { width: 1.4, color: looks.get(name).colour }, color: looks.get(name).colour }, text: mine.map(words) },
      { ...point, x: [average(mine.map((i) => chart.early[i]))], y: [average(mine.map((i) => chart.end[i]))], marker: { symbol: looks.get(name).symbol, size: 12, color: looks.get(name).colour }, text: [`${safe(name)}, mean`] },
    ];
  });
  const [x, y] = [layout.xaxis.range, layout.yaxis.range];
  const chance = { ...axes[0], mode: "lines", hoverinfo: "skip", line: { color: css("--muted"), dash: "dot", width: 1 } };
  traces.push({ ...chance, x, y: [Math.log10(chart.chance), Math.log10(chart.chance)] }, { ...chance, x: [Math.log10(chart.chance), Math.log10(chart.chance)], y });
  const rows = known.map((i) => [chart.connection[i], chart.depth[i], chart.seed[i], 10 ** chart.early[i], 10 ** chart.end[i]]);
  return { traces, layout, legend: [...armLegend(looks), ...(chart.diverged.some(Boolean) ? [{ text: "diverged", colour: css("--muted"), symbol: "x" }] : []), { text: "chance level, ln C", colour: css("--muted"), dash: "dot", width: 1.2 }], rows: { columns: ["connection", "depth", "seed", "early_loss", "final_loss"], rows }, note: "The deepest networks at which the arm at full scale is off the floor of 0. Large marks are geometric means over seeds; a run that diverged counts at chance level." };
}
