// Tables that sort, the filter of the runs, buttons that copy, and findings that show their layers.
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = element("button", { type: "button" }, head.textContent);
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sortBy(table, heads, column));
  });
}

function sortBy(table, heads, column) {
  const ascending = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head, i) => head.hasAttribute("aria-sort") && head.setAttribute("aria-sort", i === column ? (ascending ? "ascending" : "descending") : "none"));
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [row.cells[column].textContent.trim(), row]);
  rows.sort(([a], [b]) => compareCells(a, b, ascending));
  body.replaceChildren(...rows.map(([, row]) => row));
}

// Numbers as numbers, the rest as text; empty cells last, whichever way.
function compareCells(a, b, ascending) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [a, b].map((value) => Number(value.replace(/,/g, "")));
  const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  return ascending ? order : -order;
}

function filterRuns() {
  const words = document.getElementById("runs-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.querySelectorAll("#runs-table tbody tr")];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const left = rows.filter((row) => !row.hidden).length;
  document.getElementById("runs-count").textContent = `${left} of ${rows.length} runs`;
}

function copyCommand(button) {
  const text = button.previousElementSibling.textContent;
  const done = () => {
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "copy"), 1500);
  };
  const byHand = () => {
    const range = document.createRange();
    range.selectNodeContents(button.previousElementSibling);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "selected";
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
  else byHand();
}

// From a finding to the layers that it speaks of.
function showLayers(button) {
  const { connection, depth, setting, metric, step, study, layers } = button.dataset;
  const studyName = EVIDENCE[Number(study)].provenance.study;
  const source = DATA.sources.findIndex((one) => one.study === studyName && one.setting === setting);
  const panel = panels.get("layers");
  if (source < 0 || !panel || !DATA.layers[metric]) return;
  show("sources", source);
  show("connections", connection);
  show("depths", Number(depth));
  const steps = allSteps(metric);
  const at = steps.filter((s) => s <= Number(step));
  Object.assign(panel.state, { metric, by: "connection", relative: false, fit: true, step: Math.max(0, at.length - 1) });
  panel.state.marked = { metric, connection, source, depth: Number(depth), layers: layers ? layers.split(",").map(Number) : [] };
  layerControls();
  refresh();
  panel.node.scrollIntoView();
  panel.node.querySelector("select").focus({ preventScroll: true });
}

function openTarget() {
  const target = document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
