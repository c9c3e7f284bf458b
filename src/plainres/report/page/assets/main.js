// Put the page together: panels, theme, printing.
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  buildFilters();
  refresh();
}

function buildPanels() {
  addPanel("degradation", drawDegradation, { scale: "root" });
  panelControls("degradation", [{ type: "select", key: "scale", label: "error axis", options: [["root", "square root"], ["linear", "linear"]] }]);
  addPanel("curves", drawCurves, { metric: "train_error", x: "steps", by: "connection", scale: "root", seeds: "all" });
  curveControls();
  if (Object.keys(DATA.layers).length > 0) {
    const metric = DATA.layers.grad_norm ? "grad_norm" : Object.keys(DATA.layers)[0];
    addPanel("layers", drawLayers, { metric, by: "connection", relative: false, fit: false });
    layerControls();
    addPanel("heatmaps", drawHeatmaps, { metric, depth: String(DEPTHS[DEPTHS.length - 1]) });
    heatmapControls();
  }
  if (DATA.chains.length > 0) {
    addPanel("chain", drawChain, { moment: "end", by: "none" });
    chainControls();
  }
  if (DATA.arms.some((arm) => arm.of !== null)) {
    addPanel("construction", drawConstruction, { seeds: "all" });
    panelControls("construction", [seedControl()]);
  }
  if (DATA.across.length > 0) {
    addPanel("across", drawAcross, { chart: "0" });
    panelControls("across", [{ type: "select", key: "chart", label: "show", options: DATA.across.map((chart, i) => [String(i), acrossWords(chart)]) }]);
  }
  // What these runs have nothing for is not there: neither its section nor its link.
  for (const node of document.querySelectorAll("[data-panel]")) {
    if (panels.has(node.dataset.panel)) continue;
    document.querySelector(`nav a[href="#${node.dataset.panel}"]`)?.remove();
    node.remove();
  }
}

function watch() {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const panel = panels.get(entry.target.dataset.panel);
      panel.visible = entry.isIntersecting;
      if (panel.visible && panel.dirty) paint(panel);
    }
  }, { rootMargin: "300px" });
  for (const panel of panels.values()) seen.observe(panel.node);
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      markSection();
    });
  }, { passive: true });
  markSection();
}

// The section that is being read: the last one that begins above the middle of the window.
function markSection() {
  const begun = [...document.querySelectorAll("main > section")].filter((section) => section.getBoundingClientRect().top < innerHeight / 2);
  const link = begun.length ? document.querySelector(`nav a[href="#${begun[begun.length - 1].id}"]`) : null;
  for (const other of document.querySelectorAll("nav a[aria-current]")) if (other !== link) other.removeAttribute("aria-current");
  if (!link || link.hasAttribute("aria-current")) return;
  link.setAttribute("aria-current", "true");
  link.parentElement.scrollTo({ left: link.offsetLeft - link.parentElement.offsetLeft - 40 });
}

let width = innerWidth;
function resized() {
  if (innerWidth === width) return;
  width = innerWidth;
  refresh();
}

// A printed page is light, has every chart, and says what the closed parts hold.
let before = null;
function printing() {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  for (const node of document.querySelectorAll("#claims details, #diagnosis details")) node.open = true;
  for (const panel of panels.values()) {
    const plot = panel.node.querySelector(".plot");
    const drawn = panel.draw(panel.state, 680);
    legend(panel.node.querySelector(".legend"), drawn.legend || []);
    plot.style.minHeight = `${drawn.layout.height}px`;
    Plotly.react(plot, drawn.traces, framed({ ...drawn.layout, width: 680 }), CONFIG);
  }
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
buildFilters();
buildPanels();
watch();
document.querySelectorAll("table.sortable").forEach(makeSortable);
document.getElementById("runs-filter").addEventListener("input", filterRuns);
filterRuns();
document.querySelectorAll("button.copy").forEach((button) => button.addEventListener("click", () => copyCommand(button)));
document.querySelectorAll("button.show-layers").forEach((button) => button.addEventListener("click", () => showLayers(button)));
addEventListener("resize", resized);
addEventListener("hashchange", openTarget);
openTarget();
addEventListener("beforeprint", printing);
addEventListener("afterprint", () => setTheme(before));
