// What all charts show (filters), and the controls of single panels.
const MANY = 6; // connections that are switched on at first, plain and residual among them
const FIRST = ["plain", "residual", ...DATA.arms.map((arm) => arm.name)].filter((name) => ARMS.has(name));
const shown = {
  sources: new Set(DATA.sources.slice(0, MANY).map((_, i) => i)),
  connections: new Set(unique(FIRST).slice(0, MANY)),
  depths: new Set(DEPTHS),
};
const isShown = (row) => shown.sources.has(row.source) && shown.connections.has(row.connection) && shown.depths.has(row.depth);

function chips(title, values, set, words, look) {
  const group = element("div", { role: "group", "aria-label": title });
  group.append(element("span", { class: "what" }, title));
  for (const value of values) {
    const chip = element("button", { type: "button", class: "chip", "aria-pressed": String(set.has(value)), "data-filter": title, "data-value": String(value) });
    if (look) chip.append(swatch(look(value)));
    chip.append(document.createTextNode(words(value)));
    chip.addEventListener("click", () => {
      if (set.has(value)) set.delete(value);
      else set.add(value);
      chip.setAttribute("aria-pressed", String(set.has(value)));
      refresh();
    });
    group.append(chip);
  }
  return group;
}

function buildFilters() {
  const node = document.getElementById("filters");
  const groups = [];
  if (DATA.sources.length > 1) groups.push(chips("setting", DATA.sources.map((_, i) => i), shown.sources, (i) => DATA.sources[i].label || DATA.sources[i].study));
  if (DATA.arms.length > 1) groups.push(chips("connection", DATA.arms.map((arm) => arm.name), shown.connections, (name) => ARMS.get(name).words, (name) => ({ colour: shade(name), dash: ARMS.get(name).dash })));
  if (DEPTHS.length > 1) groups.push(chips("depth", DEPTHS, shown.depths, String));
  node.replaceChildren(...groups);
  node.hidden = groups.length === 0;
}

// Make sure that something is on, for example what a finding speaks of.
function show(kind, value) {
  shown[kind].add(value);
  buildFilters();
}

function panelControls(id, specs) {
  const panel = panels.get(id);
  const box = panel.node.querySelector(".controls");
  box.replaceChildren();
  for (const spec of specs) {
    if (spec.type === "select") box.append(select(id, panel, spec));
    if (spec.type === "check") box.append(check(id, panel, spec));
    if (spec.type === "slider") box.append(slider(id, panel, spec));
  }
  const csv = element("button", { type: "button", class: "csv", title: "download what this chart shows" }, "CSV");
  csv.addEventListener("click", () => download([...EVIDENCE.map((one) => one.provenance.study), id, panel.state.metric].filter(Boolean).join("-") + ".csv", panel.rows));
  box.append(csv);
}

function select(id, panel, spec) {
  const label = element("label", {}, `${spec.label} `);
  const box = element("select", { "data-control": spec.key });
  for (const [value, words, disabled] of spec.options) {
    const option = element("option", { value }, words);
    option.disabled = Boolean(disabled);
    box.append(option);
  }
  box.value = panel.state[spec.key];
  box.addEventListener("change", () => {
    panel.state[spec.key] = box.value;
    if (spec.then) spec.then();
    refresh([id]);
  });
  label.append(box);
  return label;
}

function check(id, panel, spec) {
  const label = element("label");
  const box = element("input", { type: "checkbox", "data-control": spec.key });
  box.checked = panel.state[spec.key];
  box.addEventListener("change", () => {
    panel.state[spec.key] = box.checked;
    refresh([id]);
  });
  label.append(box, document.createTextNode(` ${spec.label}`));
  return label;
}

function slider(id, panel, spec) {
  const box = element("div", { class: "slide" });
  const name = `${id}-${spec.key}`;
  const range = element("input", { type: "range", id: name, min: 0, max: Math.max(0, spec.values.length - 1), step: 1, "data-control": spec.key });
  const output = element("output", { for: name });
  const say = () => {
    output.textContent = spec.words(spec.values[panel.state[spec.key]]);
    range.setAttribute("aria-valuetext", output.textContent);
  };
  range.value = String(panel.state[spec.key]);
  range.addEventListener("input", () => {
    panel.state[spec.key] = Number(range.value);
    say();
    refresh([id]);
  });
  box.append(element("label", { for: name }, spec.label), range, output);
  say();
  return box;
}

function download(name, table) {
  if (!table) return;
  const quote = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
  const text = [table.columns, ...table.rows].map((row) => row.map(quote).join(",")).join("\n") + "\n";
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
